#!/usr/bin/python3
"""From an event's publication to its score, at half of the measured capacity: at an
RPC subscriber, and at a read_committed consumer.

    bench/latency.py --driftline build/driftline --probe build/bench/latency-probe

A first burst fills windows, so that events cost what they cost in the long run; a
second one tells the capacity (scores a second of the clock). Then events are sent at
half of that, one by one at even distances, with the time of sending as their id,
which scores carry. The service has one core (--core) and one worker; the broker
and the probe, which sends and listens, have the others, and what each uses of a
core is told.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kafka

TOPIC = "latency"


PARTS = {"events": "batch_events", "publish_latency": "publish_latency_seconds",
         "scoring": "scoring_duration_seconds", "commit": "commit_duration_seconds"}


def sums(service):
    return {name + end: service.metric(f"driftline_{PARTS[name]}_{end}")
            for name in PARTS for end in ("sum", "count")}


def line(found):
    return (f"p50 {found['p50']:.1f} ms, p90 {found['p90']:.1f}, p99 {found['p99']:.1f}, "
            f"p99.9 {found['p99.9']:.1f} over {found['count']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driftline", required=True)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm", type=int, default=20000, help="events of the first burst")
    parser.add_argument("--burst", type=int, default=8000, help="events of the second")
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--load", type=float, default=0.5, help="of the capacity")
    parser.add_argument("--architecture", default="diffdyg-cached")
    parser.add_argument("--core", type=int, default=0, help="the service's own")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of the service more")
    parser.add_argument("--work", type=Path, default=Path("build/bench/latency"))
    args = parser.parse_args()
    others = os.sched_getaffinity(0) - {args.core}
    if not others:
        sys.exit("latency: one core cannot be shared out; two are needed")
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    feed, model = args.work / "feed.csv", args.work / "model.safetensors"
    subprocess.run([args.driftline, "simulate", "--out", feed, "--events", "400000", "--nodes",
                    "5000", "--events-per-day", "50000"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([args.driftline, "train", feed, "--time-unit", "ms", "--out", model, "--epochs",
                    "1", "--positives", "2000", "--architecture", args.architecture], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(0, others)
    # The test broker gives up on itself after a second of silence; a busy core is no reason.
    brokers = kafka.broker("start", args.work / "broker", "--fresh", "--set",
                           "broker.session.timeout.ms=9000")
    broker_pid = int((args.work / "broker" / "pid").read_text())
    try:
        kafka.make_topics(brokers, {TOPIC: 1, "scores": 1})
        service = kafka.Service(args.driftline, args.work / "serve.log", {
            "kafka.bootstrap.servers": brokers, "kafka.group.id": "latency", "source.topics": TOPIC,
            "source.time_unit": "ms", "model.path": model, "store.path": args.work / "s.db",
            "predict.candidates_max": args.candidates, "predict.scores_topic": "scores",
            "predict.predictions_topic": "", "predict.alerts_topic": "", "model.workers": 1,
            **dict(pair.split("=", 1) for pair in args.set)}, core=args.core)
        service.wait(lambda: service.metric("driftline_source_partitions") == 1)
        subprocess.run([args.driftline, "replay", feed, "--limit", str(args.warm + args.burst),
                        "--to", f"{brokers}/{TOPIC}"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        service.wait(lambda: service.metric("driftline_scores_total") >= args.warm, pause=0.01)
        first, began = service.metric("driftline_scores_total"), time.monotonic()
        service.wait(lambda: service.metric("driftline_scores_total") >= args.warm + args.burst)
        capacity = (args.warm + args.burst - first) / (time.monotonic() - began)
        service.wait(lambda: service.metric("driftline_outbox_rows") == 0)
        cpu = [service.cpu(), kafka.cpu_seconds(broker_pid)]
        before = sums(service)
        probe = subprocess.run([args.probe, brokers, TOPIC, "scores", service.rpc, feed,
                                str(args.warm + args.burst), str(capacity * args.load), str(args.seconds)],
                               check=True, stdout=subprocess.PIPE, text=True).stdout
        cpu = [service.cpu() - cpu[0], kafka.cpu_seconds(broker_pid) - cpu[1]]
        inside = {name: value - before[name] for name, value in sums(service).items()}
        service.stop()
    finally:
        kafka.broker("stop", args.work / "broker")
    found = json.loads(probe)
    shares = [100 * seconds / args.seconds for seconds in (*cpu, found["cpu_seconds"])]
    print(f"capacity {capacity:,.0f} scores/s of the clock on one core; {found['sent']} events in "
          f"{args.seconds:.0f} s; of a core the service used {shares[0]:.0f} %, the broker "
          f"{shares[1]:.0f} %, the probe {shares[2]:.0f} %")
    mean = {name: inside[name + "sum"] / max(1, inside[name + "count"]) for name in PARTS}
    print(f"in the service, on average: {mean['events']:.1f} events a batch, scored in "
          f"{1e3 * mean['scoring']:.2f} ms, committed in {1e3 * mean['commit']:.2f} ms; from its "
          f"arrival to its commit an event took {1e3 * mean['publish_latency']:.2f} ms")
    print(f"read_committed consumer: {line(found['read_committed'])}")
    print(f"latency: event to RPC subscriber {line(found['rpc'])} (target p99 < 10 ms at half of "
          f"the capacity measured in the same run)")


if __name__ == "__main__":
    main()
