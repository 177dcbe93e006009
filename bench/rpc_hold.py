#!/usr/bin/python3
"""How many clients driftline's RPC holds, and what each costs in memory: idle
connections, then subscribers (one stream each on a connection of its own), who
all get every record.

    bench/rpc_hold.py BUILD_FOLDER [--idle N] [--subscribers N]
"""
import argparse
import resource
import selectors
import socket
import struct
import subprocess
import sys
import time

SERVICE = "/driftline.v1.LinkPrediction/"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(path):
    block = b""
    for name, value in ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                        ("content-type", "application/grpc"), ("te", "trailers")):
        block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return block


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(4, 1, 0)


def call(path, message):
    body = b"\0" + struct.pack(">I", len(message)) + message
    return frame(1, 4, 1, headers(path)) + frame(0, 1, 1, body)


def memory_kib(process):
    for line in open(f"/proc/{process.pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def connect(address, data):
    s = socket.create_connection(address, 10)
    s.sendall(data)
    return s


def settle(process):
    """Until the server has dealt with what came: its memory stands still."""
    last = -1
    while (now := memory_kib(process)) != last:
        last = now
        time.sleep(0.5)
    return last


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build")
    arguments.add_argument("--idle", type=int, default=10_000)
    arguments.add_argument("--subscribers", type=int, default=1_000)
    a = arguments.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < a.idle + a.subscribers + 100:
        sys.exit(f"bench/rpc_hold.py: at most {hard} files may be open; raise ulimit -n")
    process = subprocess.Popen(
        [f"{a.build}/tests/rpc-backend", "--set", "source.kind=stdin", "--set", "source.time_unit=ms",
         "--set", "rpc.listen=127.0.0.1:0", "--set", f"rpc.connections_max={a.idle + a.subscribers + 10}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    host, port = process.stdout.readline().strip().split(":")
    address = (host, int(port))
    try:
        start = settle(process)
        idle = [connect(address, HELLO) for _ in range(a.idle)]
        with_idle = settle(process)
        subscribers = [connect(address, HELLO + call(SERVICE + "SubscribeScores", b"")) for _ in range(a.subscribers)]
        with_subscribers = settle(process)
        # One ingested event becomes one score for everybody.
        event = b"\x0a\x01a\x12\x01b\x18" + b"\x80\xd0\x95\xff\xbc\x31"
        began = time.monotonic()
        connect(address, HELLO + call(SERVICE + "Ingest", b"\x0a" + bytes([len(event)]) + event))
        selector = selectors.DefaultSelector()
        waiting = set()
        for s in subscribers:
            s.setblocking(False)
            selector.register(s, selectors.EVENT_READ)
            waiting.add(s)
        while waiting and time.monotonic() - began < 20:
            for key, _ in selector.select(1):
                if b"0123456789abcdef" in key.fileobj.recv(65536):  # the record's model version
                    waiting.discard(key.fileobj)
                    selector.unregister(key.fileobj)
        took = time.monotonic() - began
        if waiting:
            sys.exit(f"bench/rpc_hold.py: {len(waiting)} subscribers got nothing")
        print(f"rpc-hold: {a.idle} idle connections at {(with_idle - start) / a.idle:.1f} KiB each, "
              f"{a.subscribers} subscribers at {(with_subscribers - with_idle) / a.subscribers:.1f} KiB each; "
              f"a record reached all of them in {took * 1000:.0f} ms")
        del idle
    finally:
        process.kill()
        process.wait()


main()
