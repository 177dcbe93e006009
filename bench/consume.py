#!/usr/bin/python3
"""Kafka to window, nothing scored, beside bare consumption with librdkafka.

    bench/consume.py --driftline build/driftline --bare build/bench/consume --events 1500000

A test broker is filled with a simulated feed (protobuf); then the two read it in
turns, each with fresh group and store. The service decodes, orders, keeps windows
and commits to SQLite (synchronous=full); the other counts. Compared are events a
second of the clock, as the design asks, and events a second of the process's CPU
time, which other programs on the machine disturb less.
"""
import argparse
import shutil
import statistics
import subprocess
import time
import uuid
from pathlib import Path

import kafka


def service_run(args, brokers, topic, store):
    service = kafka.Service(args.driftline, args.work / "serve.log", {
        "kafka.bootstrap.servers": brokers, "kafka.group.id": uuid.uuid4().hex,
        "source.topics": topic, "source.time_unit": "ms", "store.path": store,
        "predict.batch_events": args.batch, "predict.scores_topic": "", "predict.alerts_topic": "",
        "predict.predictions_topic": "", "predict.dead_letters_topic": "",
        **dict(pair.split("=", 1) for pair in args.set)})
    service.wait(lambda: service.metric("driftline_events_total") > 0, pause=0.01)
    taken, began, cpu = (service.metric("driftline_events_total"), time.monotonic(), service.cpu())
    service.wait(lambda: service.metric("driftline_events_total") >= args.events, pause=0.05)
    seconds, cpu = time.monotonic() - began, service.cpu() - cpu
    service.stop()
    return (args.events - taken) / seconds, (args.events - taken) / cpu


def bare_run(args, brokers, topic):
    done = subprocess.run([args.bare, brokers, topic, str(args.events)], stdout=subprocess.PIPE,
                          text=True, check=True).stdout.split()
    return args.events / float(done[0]), args.events / float(done[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driftline", required=True)
    parser.add_argument("--bare", required=True)
    parser.add_argument("--events", type=int, default=1500000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of the service more")
    parser.add_argument("--work", type=Path, default=Path("build/bench/consume-run"))
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    brokers = kafka.broker("start", args.work / "broker", "--fresh")
    try:
        topic = "bench-consume"
        kafka.make_topics(brokers, {topic: 1})
        feed = args.work / "feed.csv"
        subprocess.run([args.driftline, "simulate", "--out", feed, "--events", str(args.events),
                        "--nodes", "50000", "--events-per-day", "200000"], check=True,
                       stderr=subprocess.DEVNULL)
        subprocess.run([args.driftline, "replay", feed, "--to", f"{brokers}/{topic}"], check=True,
                       stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        mine, bare = [], []
        for number in range(args.rounds):
            bare.append(bare_run(args, brokers, topic))
            mine.append(service_run(args, brokers, topic, args.work / f"{number}.db"))
            print(f"round {number + 1}: bare {bare[-1][0]:,.0f} events/s, {bare[-1][1]:,.0f} a CPU "
                  f"second; driftline {mine[-1][0]:,.0f}, {mine[-1][1]:,.0f}", flush=True)
    finally:
        kafka.broker("stop", args.work / "broker")

    def middle(values, at):
        return statistics.median(v[at] for v in values)

    print(f"consume: {middle(mine, 0):,.0f} events/s, x{middle(mine, 0) / middle(bare, 0):.2f} of "
          f"bare consumption (target x0.6, librdkafka alone {middle(bare, 0):,.0f}); by CPU time "
          f"{middle(mine, 1):,.0f}, x{middle(mine, 1) / middle(bare, 1):.2f}")


if __name__ == "__main__":
    main()
