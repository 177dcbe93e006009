#!/usr/bin/python3
"""From an event's publication to its score, at half of the measured capacity: at an
RPC subscriber, and at a read_committed consumer.

    bench/latency.py --driftline build/driftline --seconds 20

A burst tells the capacity (scores a second of the clock). Then events are sent at
half of that, one by one at even distances, with the time of sending as their id,
which scores carry. The sender, the subscriber and the consumer are Python and run
on the same machine; what they take is in the figures.
"""
import argparse
import csv
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import kafka

sys.path.insert(0, str(kafka.ROOT / "tests" / "integration"))
TOPIC = "latency"


def rows_of(path):
    with open(path) as file:
        return list(csv.DictReader(file))


class Latencies:
    def __init__(self):
        self.values = []

    def take(self, score):
        if score.id:
            self.values.append((time.time_ns() - int(score.id)) / 1e6)

    def quantile(self, q):
        values = sorted(self.values)
        return values[min(len(values) - 1, int(q * len(values)))]

    def line(self):
        return (f"p50 {self.quantile(0.5):.1f} ms, p90 {self.quantile(0.9):.1f} ms, "
                f"p99 {self.quantile(0.99):.1f} ms over {len(self.values)}")


def subscribe(pb, address, found):
    import grpc

    def listen():
        with grpc.insecure_channel(address) as channel:
            stub = pb.service_grpc.LinkPredictionStub(channel)
            try:
                for message in stub.SubscribeScores(pb.service.SubscribeScoresRequest()):
                    found.take(message.score)
            except grpc.RpcError:
                pass  # the service ends
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()


def consume(pb, brokers, topic, found):
    from confluent_kafka import Consumer
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "latency-reader",
                         "auto.offset.reset": "earliest", "isolation.level": "read_committed",
                         "log_level": 0,
                         "fetch.wait.max.ms": 5})
    consumer.subscribe([topic])

    def listen():
        while True:
            for message in consumer.consume(100, 0.01):
                if not message.error():
                    found.take(pb.records.Score.FromString(message.value()))
    threading.Thread(target=listen, daemon=True).start()


def send(pb, brokers, rows, rate, seconds):
    """At even distances; returns how many."""
    from confluent_kafka import Producer
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0, "log_level": 3})
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < seconds and sent < len(rows):
        due = int((time.monotonic() - began) * rate)
        while sent < due and sent < len(rows):
            row = rows[sent]
            producer.produce(TOPIC, pb.event.EdgeEvent(
                src=row["src"], dst=row["dst"], time=int(row["time"]), weight=float(row["weight"]),
                id=str(time.time_ns())).SerializeToString())
            sent += 1
        producer.poll(0)
        time.sleep(0.0005)
    producer.flush()
    return sent


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driftline", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--burst", type=int, default=8000)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--work", type=Path, default=Path("build/bench/latency"))
    args = parser.parse_args()
    from rpc_stubs import stubs
    pb = stubs()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    feed, model = args.work / "feed.csv", args.work / "model.safetensors"
    subprocess.run([args.driftline, "simulate", "--out", feed, "--events", "200000", "--nodes",
                    "5000", "--events-per-day", "50000"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([args.driftline, "train", feed, "--time-unit", "ms", "--out", model, "--epochs",
                    "1", "--positives", "2000"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    brokers = kafka.broker("start", args.work / "broker", "--fresh")
    try:
        kafka.make_topics(brokers, {TOPIC: 1, "scores": 1})
        service = kafka.Service(args.driftline, args.work / "serve.log", {
            "kafka.bootstrap.servers": brokers, "kafka.group.id": "latency", "source.topics": TOPIC,
            "source.time_unit": "ms", "model.path": model, "store.path": args.work / "s.db",
            "predict.candidates_max": args.candidates, "predict.scores_topic": "scores",
            "predict.predictions_topic": "", "predict.alerts_topic": "",
            "kafka.fetch.wait.max.ms": 5, "kafka.linger.ms": 0})
        service.wait(lambda: service.metric("driftline_source_partitions") == 1)
        subprocess.run([args.driftline, "replay", feed, "--limit", str(args.burst), "--to",
                        f"{brokers}/{TOPIC}"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        service.wait(lambda: service.metric("driftline_scores_total") > 0, pause=0.01)
        first, began = service.metric("driftline_scores_total"), time.monotonic()
        service.wait(lambda: service.metric("driftline_scores_total") >= args.burst)
        capacity = (args.burst - first) / (time.monotonic() - began)
        service.wait(lambda: service.metric("driftline_outbox_rows") == 0)
        rpc, committed = Latencies(), Latencies()
        subscribe(pb, service.rpc, rpc)
        consume(pb, brokers, "scores", committed)
        time.sleep(3)
        cpu = service.cpu()
        sent = send(pb, brokers, rows_of(feed)[args.burst:], capacity / 2, args.seconds)
        time.sleep(2)
        cpu = service.cpu() - cpu
        service.stop()
    finally:
        kafka.broker("stop", args.work / "broker")
    print(f"capacity {capacity:,.0f} scores/s of the clock; {sent} events in {args.seconds:.0f} s, "
          f"the service used {cpu / args.seconds * 100:.0f} % of a core")
    print(f"read_committed consumer: {committed.line()}")
    print(f"latency: event to RPC subscriber {rpc.line()} (target p99 < 10 ms at half of the "
          f"capacity measured in the same run)")


if __name__ == "__main__":
    main()
