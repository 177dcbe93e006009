#!/usr/bin/python3
"""Scoring by two instances of one group on two cores, beside one on one core.

    bench/scale.py --driftline build/driftline --events 40000

A topic of two partitions is filled with a simulated feed; one instance, pinned to a
core, scores it; then, in a group of their own, two instances, each pinned to its
core, share it: each scores a partition and follows the other's for its state.
Compared are scores a second of the clock and, since other programs may run on the
machine, scores a second of the instances' CPU time (a core each): two cores give
the sum of what each gives. The broker's CPU time in the same span stands beside it.
"""
import argparse
import shutil
import subprocess
import time
from pathlib import Path

import kafka


def settings(args, brokers, topic, group, name, model):
    return {"kafka.bootstrap.servers": brokers, "kafka.group.id": group,
            "kafka.group.instance.id": name, "kafka.session.timeout.ms": 6000,
            "source.topics": topic, "source.time_unit": "ms", "model.path": model,
            "model.workers": 1, "store.path": args.work / f"{group}-{name}.db",
            "store.synchronous": "normal", "predict.candidates_max": args.candidates,
            "predict.scores_topic": f"{group}-scores", "predict.predictions_topic": f"{group}-p",
            "predict.alerts_topic": f"{group}-alerts", "predict.dead_letters_topic": ""}


def group_run(args, brokers, topic, group, cores, model, java):
    kafka.make_topics(brokers, {f"{group}-scores": 1, f"{group}-p": 1, f"{group}-alerts": 1})
    instances = [kafka.Service(args.driftline, args.work / f"{group}-{core}.log",
                               settings(args, brokers, topic, group, f"i{core}", model), core)
                 for core in cores]
    share = 2 // len(cores)
    for one in instances:
        one.wait(lambda: one.metric("driftline_source_partitions") == share)
    fill(args, brokers, topic)
    for one in instances:
        one.wait(lambda: one.metric("driftline_scores_total") > 0, pause=0.01)
    began, broker_cpu = time.monotonic(), kafka.cpu_seconds(java)
    first = [(one.metric("driftline_scores_total"), one.cpu()) for one in instances]
    ends = [None] * len(instances)

    def done():
        for at, one in enumerate(instances):
            scores, cpu = one.metric("driftline_scores_total"), one.cpu()
            if ends[at] is None or scores > ends[at][0]:
                ends[at] = (scores, cpu)
        return sum(e[0] for e in ends) >= args.events

    instances[0].wait(done, pause=0.05)
    seconds, broker_cpu = time.monotonic() - began, kafka.cpu_seconds(java) - broker_cpu
    by_cpu = [(e[0] - f[0]) / (e[1] - f[1]) for e, f in zip(ends, first)]
    scored = sum(e[0] - f[0] for e, f in zip(ends, first))
    for one in instances:
        one.stop()
    print(f"{len(cores)} instance(s): {scored / seconds:,.0f} scores/s of the clock; a CPU second "
          f"each: {', '.join(f'{x:,.0f}' for x in by_cpu)}; the broker used {broker_cpu:.1f} CPU "
          f"seconds in {seconds:.1f} s", flush=True)
    return scored / seconds, sum(by_cpu)


def fill(args, brokers, topic):
    subprocess.run([args.driftline, "replay", args.work / "feed.csv", "--to", f"{brokers}/{topic}"],
                   check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driftline", required=True)
    parser.add_argument("--events", type=int, default=40000)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--work", type=Path, default=Path("build/bench/scale"))
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    feed, model = args.work / "feed.csv", args.work / "model.safetensors"
    subprocess.run([args.driftline, "simulate", "--out", feed, "--events", str(args.events),
                    "--nodes", "5000", "--events-per-day", "50000"], check=True,
                   stderr=subprocess.DEVNULL)
    subprocess.run([args.driftline, "train", feed, "--time-unit", "ms", "--out", model, "--epochs",
                    "1", "--positives", "2000"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    brokers = kafka.broker("start", args.work / "broker", "--fresh")
    java = int((args.work / "broker" / "pid").read_text().split()[0])
    try:
        kafka.make_topics(brokers, {"scale-one": 2, "scale-two": 2})
        one = group_run(args, brokers, "scale-one", "one", [0], model, java)
        two = group_run(args, brokers, "scale-two", "two", [0, 1], model, java)
    finally:
        kafka.broker("stop", args.work / "broker")
    print(f"scale: two instances on two cores score x{two[1] / one[1]:.2f} of one on one core by "
          f"CPU time ({two[1]:,.0f} against {one[1]:,.0f} a second), x{two[0] / one[0]:.2f} by the "
          f"clock of this run")


if __name__ == "__main__":
    main()
