#!/usr/bin/python3
"""Calls a second of driftline's RPC on cached answers, beside a bare nghttp2
echo and nghttpd, each on one pinned core, loaded by h2load on another.

    bench/rpc.py BUILD_FOLDER [--seconds S] [--rounds N]

All servers take turns in rounds, so that a busy machine slows all alike. What is
compared is the median of calls for each second of the server's own CPU time,
which other programs on the machine disturb least; calls for each second of the
clock stand beside it. The last line is the result.
"""
import argparse
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile

CLIENTS, STREAMS = 8, 16


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def framed(message):
    return b"\0" + struct.pack(">I", len(message)) + message


class Server:
    def __init__(self, name, core, command, path, body, address=None):
        self.name, self.path, self.rates, self.cpu_rates = name, path, [], []
        self.body = tempfile.NamedTemporaryFile()
        self.body.write(body)
        self.body.flush()
        self.process = subprocess.Popen(["taskset", "-c", str(core), *command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = address or self.process.stdout.readline().strip()
        if not self.address:
            sys.exit(f"bench/rpc.py: {name} did not start")

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, core, seconds):
        before = self.cpu_seconds()
        rate, calls = self.load(core, seconds)
        self.rates.append(rate)
        self.cpu_rates.append(calls / (self.cpu_seconds() - before))

    def load(self, core, seconds):
        command = ["taskset", "-c", str(core), "h2load", "-t1", f"-c{CLIENTS}", f"-m{STREAMS}", f"-D{seconds:g}",
                   "-d", self.body.name, "-H", "content-type: application/grpc",
                   "-H", "te: trailers", f"http://{self.address}{self.path}"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        done = float(re.search(r"finished in [^,]*, ([\d.]+) req/s", text).group(1))
        bad = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", text).groups()
        if any(map(int, bad)) or not re.search(r"status codes: [1-9]\d* 2xx, 0 3xx, 0 4xx, 0 5xx", text):
            sys.exit(f"bench/rpc.py: {self.name} failed calls:\n{text}")
        return done, int(re.search(r"(\d+) succeeded", text).group(1))

    def stop(self):
        self.process.kill()
        self.process.wait()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build")
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--rounds", type=int, default=5)
    a = arguments.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    server_core, load_core = cores[0], cores[-1]
    port = free_port()
    hundred = framed(b"x" * 100)
    tests = f"{a.build}/tests"
    backend = [f"{tests}/rpc-backend", "--set", "source.kind=stdin", "--set", "source.time_unit=ms",
               "--set", "rpc.listen=127.0.0.1:0"]
    service = "/driftline.v1.LinkPrediction/"
    pages = tempfile.TemporaryDirectory()
    with open(f"{pages.name}/page", "wb") as page:
        page.write(hundred)
    servers = [
        Server("bare nghttp2 echo", server_core, [f"{a.build}/bench/rpc_bare"], "/echo.Echo/Unary", hundred),
        # Its fastest: a small file from its cache (--echo-upload goes by way of a temporary file).
        Server("nghttpd, 100-byte file", server_core,
               ["nghttpd", "-n1", "--no-tls", "-d", pages.name, "--max-concurrent-streams=128", str(port)], "/page",
               hundred, address=f"127.0.0.1:{port}"),
        Server("driftline echo", server_core, [f"{tests}/rpc-echo"], "/echo.Echo/Unary", hundred),
        Server("driftline GetModel", server_core, backend, service + "GetModel", framed(b"")),
        Server("driftline GetWindow", server_core, backend, service + "GetWindow", framed(field(1, b"alice"))),
    ]
    import time
    time.sleep(0.5)
    try:
        for _ in range(a.rounds):
            for server in servers:
                server.measure(load_core, a.seconds)
        print(f"{CLIENTS} connections x {STREAMS} streams, 100-byte messages, h2load on core {load_core}, "
              f"server on core {server_core}, {a.rounds} rounds of {a.seconds} s")
        for server in servers:
            print(f"  {server.name:24} {statistics.median(server.cpu_rates):8.0f} calls a CPU second "
                  f"({min(server.cpu_rates):.0f} to {max(server.cpu_rates):.0f}), "
                  f"{statistics.median(server.rates):.0f} a second")
        print("latency at half of each one's own capacity:")
        for server in (servers[0], servers[2], servers[3]):
            latency(server, load_core, a.seconds)
        rate = {server.name: statistics.median(server.cpu_rates) for server in servers}
        bare, nghttpd = rate["bare nghttp2 echo"], rate["nghttpd, 100-byte file"]
        best = rate["driftline GetModel"]
        print(f"rpc: {best:.0f} calls a CPU second on a cached answer (GetModel) = {best / bare:.2f} x bare nghttp2 echo "
              f"(target 0.70; bare {bare:.0f}), {best / nghttpd:.2f} x nghttpd (target 1.00; {nghttpd:.0f})")
    finally:
        for server in servers:
            server.stop()


def latency(server, core, seconds):
    """Percentiles at half of the measured capacity, from h2load's own log."""
    with tempfile.NamedTemporaryFile() as log:
        half = statistics.median(server.rates) / 2
        command = ["taskset", "-c", str(core), "h2load", "-t1", f"-c{CLIENTS}", "-m4", f"--rps={half / CLIENTS}",
                   f"-D{max(seconds, 3):g}", f"--log-file={log.name}", "-d", server.body.name,
                   "-H", "content-type: application/grpc", "-H", "te: trailers",
                   f"http://{server.address}{server.path}"]
        subprocess.run(command, capture_output=True, check=True)
        times = sorted(int(line.split()[2]) for line in open(log.name))
    at = lambda q: times[min(len(times) - 1, int(q * len(times)))]
    print(f"  {server.name:24} {len(times) / max(seconds, 3):8.0f} calls/s: p50 {at(.5)} us, p99 {at(.99)} us, "
          f"p99.9 {at(.999)} us")


main()
