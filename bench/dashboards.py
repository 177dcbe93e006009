#!/usr/bin/python3
"""Do open dashboards slow scoring? The service scores a simulated feed as fast as
it can on one core; in turns, nobody looks and N dashboards hold the event stream
open. The clients have the other core; their share is told.

The machine may be shared, so the service's own CPU time is what is compared:
beside what the same number of events took without dashboards, how many CPU
seconds go to N dashboards in a second of the clock? A core that the service has
for itself loses that share. Both ends of a measurement lie where a batch ends,
since events are counted by batches.

    bench/dashboards.py BUILD_FOLDER [--dashboards N] [--rounds N] [--seconds S]
"""
import argparse
import os
import pathlib
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

EVENTS = 3_000_000


class Dashboards(threading.Thread):
    """N connections to /api/events, read by one thread."""

    def __init__(self, address, count, core):
        super().__init__(daemon=True)
        self.selector, self.sockets, self.bytes, self.core = selectors.DefaultSelector(), [], 0, core
        for _ in range(count):
            one = socket.create_connection(address, 10)
            one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.sockets.append(one)
            self.selector.register(one, selectors.EVENT_READ)
        self.ending = False
        self.start()

    def run(self):
        os.sched_setaffinity(0, {self.core})
        while not self.ending:
            for key, _ in self.selector.select(0.2):
                got = key.fileobj.recv(1 << 16)
                if not got:
                    print("bench/dashboards.py: a dashboard was thrown out", file=sys.stderr)
                    os._exit(1)
                self.bytes += len(got)

    def close(self):
        self.ending = True
        self.join()
        for one in self.sockets:
            one.close()


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def prepare(build, work):
    """A feed and a model, made once."""
    work.mkdir(parents=True, exist_ok=True)
    feed, past, model = work / "feed.csv", work / "past.csv", work / "model.safetensors"
    if not feed.exists():
        run(build / "driftline", "simulate", "--events", EVENTS, "--events-per-day", 20000, "--out",
            work / "new.csv")
        (work / "new.csv").rename(feed)
    if not model.exists():
        with open(feed) as whole, open(past, "w") as part:
            part.writelines(line for line, _ in zip(whole, range(20001)))
        run(build / "driftline", "train", past, "--time-unit", "ms", "--epochs", 2, "--positives", 2000,
            "--out", model)
    return feed, model


def cpu_seconds(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--dashboards", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=8)
    a = arguments.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cores = sorted(os.sched_getaffinity(0))
    feed, model = prepare(a.build, a.build / "bench" / "dashboards")
    store = a.build / "bench" / "dashboards" / "store.db"
    for old in store.parent.glob("store.db*"):
        old.unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    sets = {"source.kind": "file", "source.path": feed, "source.encoding": "csv", "source.time_unit": "ms",
            "store.path": store, "store.synchronous": "normal", "model.path": model, "rpc.listen": "off",
            "http.listen": f"127.0.0.1:{address[1]}", "predict.for": "none"}
    process = subprocess.Popen([a.build / "driftline", "serve", "--log-level", "error",
                                *(w for k, v in sets.items() for w in ("--set", f"{k}={v}"))],
                               preexec_fn=lambda: os.sched_setaffinity(0, {cores[0]}))
    metrics = f"http://127.0.0.1:{address[1]}/metrics"

    def scored():
        for line in urllib.request.urlopen(metrics, timeout=10).read().decode().splitlines():
            if line.startswith("driftline_scores_total "):
                return float(line.split()[1])
        return 0.0

    def batch_end():
        first, deadline = scored(), time.monotonic() + 20
        while (now := scored()) == first:
            if time.monotonic() > deadline or process.poll() is not None:
                sys.exit("bench/dashboards.py: the service scores nothing any more")
            time.sleep(0.02)
        return now, cpu_seconds(process), time.monotonic()

    def measure():
        begun = batch_end()
        time.sleep(a.seconds)
        return [end - start for end, start in zip(batch_end(), begun)]

    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if scored() > 5000:
                    break
            except OSError:
                pass
            time.sleep(0.2)
        shares = []
        for turn in range(a.rounds):
            events, cpu, wall = measure()
            each, pace = cpu / events, events / wall
            mine = time.process_time()
            watching = Dashboards(address, a.dashboards, cores[-1])
            time.sleep(1.5)
            before = watching.bytes
            events, cpu, wall = measure()
            got = (watching.bytes - before) / a.dashboards / wall
            watching.close()
            if got < 100:
                sys.exit(f"bench/dashboards.py: a dashboard got {got:.0f} bytes a second")
            shares.append((cpu - events * each) / wall)
            print(f"  round {turn + 1}: {1 / each:,.0f} events a CPU second alone, {events / cpu:,.0f} watched; "
                  f"{pace:,.0f} and {events / wall:,.0f} a second of the clock, of which the service had "
                  f"{cpu / wall:.2f} of a core; dashboards took {1000 * shares[-1]:.1f} ms a second, "
                  f"{got:,.0f} bytes a second each; clients {(time.process_time() - mine) / wall:.2f} of "
                  f"the other core", flush=True)
    finally:
        process.kill()
        process.wait()
    print(f"dashboards: scoring with {a.dashboards} open dashboards at {1 - statistics.median(shares):.3f} of "
          f"its speed without (target 0.95; the same process without them in the same run)")


if __name__ == "__main__":
    main()
