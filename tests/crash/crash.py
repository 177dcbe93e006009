#!/usr/bin/python3
"""Kills the service at random instants of a replay and looks whether anything
was lost or repeated.

    tests/crash/crash.py [--kills N] [--broker-kills N] [--broker-stop SECONDS] [--seed N]

A simulated feed, with broken and late messages in it, goes to a topic in
portions, one for each life of the service. The service is killed (SIGKILL) at a
random instant of each life: while it starts, recovers, scores, commits or
publishes. With --broker-kills the broker dies in the same way now and then, with
--broker-stop it is away for a while in the middle. In the end the feed is taken
once more by a service that nobody disturbs, from a store of its own to topics of
its own. What a read_committed consumer finds in both must be the same, record by
record and in the same order, and so must all windows, asked for by RPC.

It brings its own broker (tests/kafka/broker) unless DRIFTLINE_TEST_BROKERS names
one. The seed is printed; the same seed chooses the same instants.
"""
import argparse
import csv
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("DRIFTLINE_BUILD", "build")
PROGRAM = BUILD / "driftline"
sys.path.insert(0, str(ROOT / "tests" / "integration"))
KINDS = ("scores", "predictions", "alerts", "dead_letters", "late")
WAIT_SECONDS = 240


class Failed(Exception):
    pass


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def call(*arguments):
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{arguments[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")


class Broker:
    """The test broker, when it is this program's own to kill."""

    def __init__(self, folder):
        self.folder = folder
        self.address = self.do("start", "--fresh")

    def do(self, action, *flags):
        return subprocess.run([str(ROOT / "tests" / "kafka" / "broker"), action, "--dir",
                               str(self.folder), *flags], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.strip()


def make_topics(brokers, names):
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 3})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)


def make_feed(folder, events, seed):
    """A feed and a small model of it."""
    feed, model = folder / "feed.csv", folder / "model.safetensors"
    call("simulate", "--out", feed, "--events", events, "--nodes", 300, "--seed", seed)
    call("train", feed, "--time-unit", "ms", "--out", model, "--epochs", 1, "--positives", 2000)
    return feed, model


def messages_of(feed, pb, count):
    """The feed as messages; some are broken, some come too late."""
    with open(feed) as file:
        rows = list(csv.DictReader(file))[:count]
    messages = []
    for i, row in enumerate(rows):
        at = int(row["time"]) - (10 * 86400000 if i % 61 == 60 else 0)
        event = pb.event.EdgeEvent(src=row["src"], dst=row["dst"], time=at,
                                   weight=float(row["weight"]), id=f"event-{i}")
        messages.append(b"\xff broken" if i % 97 == 96 else event.SerializeToString())
    return messages, sorted({r["src"] for r in rows} | {r["dst"] for r in rows})


def publish(brokers, topic, messages, first):
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "enable.idempotence": True,
                         "log_level": 3})
    for i, message in enumerate(messages, first):
        producer.produce(topic, message, key=str(i))
        producer.poll(0)
    if producer.flush(WAIT_SECONDS):
        raise Failed("the broker did not take the feed")


class Life:
    """One process of the service."""

    def __init__(self, run):
        rpc, http = free_ports(2)
        self.rpc, self.http = f"127.0.0.1:{rpc}", f"127.0.0.1:{http}"
        self.log = run.folder / f"{run.name}-{run.lives}.log"
        run.lives += 1
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [str(PROGRAM), "serve", *run.flags, "--rpc", self.rpc, "--http", self.http],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.rss_max_kib = 0

    def metrics(self):
        """Metrics, or None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")}

    def look(self):
        """Fails if it ended by itself; remembers its size."""
        if self.process.poll() is not None:
            raise Failed(f"the service ended with {self.process.returncode}:\n" +
                         self.log.read_text(errors="replace")[-3000:])
        try:
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    self.rss_max_kib = max(self.rss_max_kib, int(line.split()[1]))
        except OSError:
            pass

    def wait_drained(self, brokers, topic, seconds=WAIT_SECONDS):
        """Until the topic was read to its end and all was published."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            m = self.metrics()
            ends = end_offsets(brokers, topic) if m else {}
            if m and m.get("driftline_outbox_rows") == 0 and all(
                    m.get('driftline_source_offset{topic="%s",partition="%d"}' % (topic, p), 0)
                    >= end for p, end in ends.items()):
                return
            time.sleep(0.3)
        raise Failed(f"not drained after {seconds} s:\n" +
                     self.log.read_text(errors="replace")[-3000:])

    def kill(self):
        self.look()
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.look()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        if code:
            raise Failed(f"the service ended with {code}:\n" +
                         self.log.read_text(errors="replace")[-3000:])


def end_offsets(brokers, topic):
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "ends"})
    try:
        partitions = consumer.list_topics(topic, 20).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1]
                for p in partitions}
    except Exception:  # the broker is away
        return {0: float("inf")}
    finally:
        consumer.close()


def read_topic(brokers, topic):
    """Everything that a read_committed consumer sees: (partition, key, value, headers)."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": uuid.uuid4().hex,
                         "auto.offset.reset": "earliest", "isolation.level": "read_committed",
                         "enable.partition.eof": True, "enable.auto.commit": False})
    found, left = [], None
    consumer.subscribe([topic])
    deadline = time.monotonic() + WAIT_SECONDS
    while left is None or left:
        if time.monotonic() > deadline:
            raise Failed(f"{topic} could not be read to its end: is a transaction open?")
        for message in consumer.consume(1000, 0.5):
            if message.error() and message.error().code() != KafkaError._PARTITION_EOF:
                if message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    consumer.close()
                    return []
                raise Failed(str(message.error()))
            if left is None:
                left = {p.partition for p in consumer.assignment()}
            if message.error():
                left.discard(message.partition())
            else:
                found.append((message.partition(), message.key(), message.value(),
                              message.headers()))
    consumer.close()
    return found


class Run:
    """One way through the feed: a group, a store and output topics of its own."""

    def __init__(self, folder, brokers, topic, model, name, more=()):
        self.folder, self.brokers, self.topic, self.name = folder, brokers, topic, name
        self.lives = 0
        self.outputs = {kind: f"{topic}-{name}-{kind.replace('_', '-')}" for kind in KINDS}
        make_topics(brokers, self.outputs.values())
        sets = {"kafka.group.id": f"{topic}-{name}", "predict.for": "both",
                "predict.candidates_max": 20, "predict.batch_events": 32,
                "predict.quality_negatives": 5, "drift.surprise_bits": 2,
                "source.lateness": 86400000, "source.late_policy": "topic",
                "kafka.session.timeout.ms": 6000, "store.synchronous": "normal",
                **{f"predict.{kind}_topic": t for kind, t in self.outputs.items()}}
        self.flags = ["--brokers", brokers, "--topics", topic, "--store",
                      str(folder / f"{name}.db"), "--time-unit", "ms", "--model", str(model),
                      *(w for key, value in sets.items() for w in ("--set", f"{key}={value}")),
                      *more]

    def published(self, pb):
        """By topic, what readers see. The time of arrival is no part of it."""
        found = {}
        for kind, topic in self.outputs.items():
            found[kind] = []
            for partition, key, value, headers in read_topic(self.brokers, topic):
                if kind == "dead_letters":
                    letter = pb.records.DeadLetter.FromString(value)
                    letter.received_us = 0
                    value = letter.SerializeToString(deterministic=True)
                found[kind].append((partition, key, value, headers))
        return found

    def windows(self, life, pb, nodes):
        import grpc
        with grpc.insecure_channel(life.rpc) as channel:
            stub = pb.service_grpc.LinkPredictionStub(channel)
            return {node: stub.GetWindow(pb.service.GetWindowRequest(node=node), timeout=20)
                    .SerializeToString(deterministic=True) for node in nodes}


def compare(crashed, calm, count):
    """What differs, as lines."""
    wrong = []
    for kind in KINDS:
        a, b = crashed[kind], calm[kind]
        if a == b:
            continue
        first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        wrong.append(f"{kind}: {len(a)} records, {len(b)} undisturbed; lost "
                     f"{len(set(map(str, b)) - set(map(str, a)))}, repeated "
                     f"{len(a) - len(set(map(str, a)))}, the first difference at {first}")
    if len(calm["scores"]) + len(calm["dead_letters"]) + len(calm["late"]) != count:
        wrong.append("the undisturbed run itself does not add up: "
                     f"{ {k: len(v) for k, v in calm.items()} } of {count}")
    return wrong


def crash(folder, brokers, kills, events, seed, broker=None, broker_kills=0, broker_stop=0,
          say=print, more=()):
    """The whole test. Returns a report; raises Failed."""
    from rpc_stubs import stubs
    pb, rng = stubs(), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    feed, model = make_feed(folder, max(events, 6000), seed)
    messages, nodes = messages_of(feed, pb, events)
    topic = f"crash-{uuid.uuid4().hex[:8]}"
    make_topics(brokers, [topic])
    run = Run(folder, brokers, topic, model, "crashed", more)
    lives, sent, rss_max_kib = kills + 1, 0, 0
    at_broker = set(rng.sample(range(1, kills), min(broker_kills, max(kills - 1, 0)))
                    if broker else ())
    ready_seconds = 1.0  # how long a start takes, learnt as it goes
    began = time.monotonic()
    for life_number in range(kills):
        portion = messages[sent:(life_number + 1) * events // lives]
        publish(brokers, topic, portion, sent)
        sent += len(portion)
        life, started = Life(run), time.monotonic()
        if life_number % 20 == 10:  # learns how long a start takes
            while not (life.metrics() or {}).get("driftline_ready"):
                life.look()
                if time.monotonic() - started > WAIT_SECONDS:
                    raise Failed(f"{life.log}: it does not get ready")
                time.sleep(0.02)
            ready_seconds = 0.5 * ready_seconds + 0.5 * (time.monotonic() - started)
            time.sleep(rng.random())
        else:
            time.sleep(rng.random() * (1.3 * ready_seconds + 0.7))
        if life_number in at_broker:
            broker.do("restart", "--crash")
            time.sleep(rng.random() * 2)
        life.look()
        rss_max_kib = max(rss_max_kib, life.rss_max_kib)
        life.kill()
        if life_number % 10 == 9:
            say(f"{life_number + 1} of {kills} kills, {sent} of {events} events sent, "
                f"{time.monotonic() - began:.0f} s, a start takes {ready_seconds:.1f} s")
    life = Life(run)
    if broker_stop and broker:
        half = sent + (events - sent) // 2
        publish(brokers, topic, messages[sent:half], sent)
        time.sleep(2)
        broker.do("stop")
        stopped = time.monotonic()
        while time.monotonic() - stopped < broker_stop:
            life.look()
            time.sleep(0.5)
        broker.do("start")
        sent = half
    publish(brokers, topic, messages[sent:], sent)
    life.wait_drained(brokers, topic)
    rss_max_kib = max(rss_max_kib, life.rss_max_kib)
    crashed_windows = run.windows(life, pb, nodes)
    life.stop()
    crash_seconds = time.monotonic() - began

    calm = Run(folder, brokers, topic, model, "calm", more)
    life = Life(calm)
    life.wait_drained(brokers, topic)
    calm_windows = calm.windows(life, pb, nodes)
    life.stop()
    found, expected = run.published(pb), calm.published(pb)
    wrong = compare(found, expected, events)
    differ = sum(crashed_windows[n] != calm_windows[n] for n in nodes)
    if differ:
        wrong.append(f"{differ} of {len(nodes)} windows differ")
    report = {"kills": kills, "broker_kills": len(at_broker), "broker_stop_seconds": broker_stop,
              "seed": seed, "events": events, "seconds": round(crash_seconds),
              "records": {k: len(v) for k, v in expected.items()}, "windows": len(nodes),
              "rss_max_mib": round(rss_max_kib / 1024), "wrong": wrong}
    if wrong:
        raise Failed(f"seed {seed}: " + "; ".join(wrong))
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--events", type=int, help="default: 60 a kill, at least 3,000")
    parser.add_argument("--broker-kills", type=int, default=0)
    parser.add_argument("--broker-stop", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--dir", type=Path, default=BUILD / "crash", help="emptied first")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    events = args.events or max(3000, 60 * args.kills)
    print(f"seed {seed}, {args.kills} kills, {events} events", flush=True)
    broker, brokers = None, os.environ.get("DRIFTLINE_TEST_BROKERS")
    if (args.dir / "broker").exists():
        subprocess.run([str(ROOT / "tests" / "kafka" / "broker"), "stop", "--dir",
                        str(args.dir / "broker")], check=True)
    shutil.rmtree(args.dir, ignore_errors=True)
    if not brokers or args.broker_kills or args.broker_stop:
        broker = Broker(args.dir / "broker")
        brokers = broker.address
    try:
        more = [w for s in args.set for w in ("--set", s)]
        report = crash(args.dir, brokers, args.kills, events, seed, broker, args.broker_kills,
                       args.broker_stop, lambda text: print(text, flush=True), more)
        print(json.dumps(report))
        print(f"{args.kills} kills: 0 lost, 0 repeated, windows identical")
    except Failed as failed:
        print(f"FAILED: {failed}")
        sys.exit(1)
    finally:
        if broker:
            broker.do("stop")


if __name__ == "__main__":
    main()
