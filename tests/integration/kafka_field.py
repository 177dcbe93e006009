"""Kafka as it is in the field: several topics, an idle partition, repeats,
headers, late messages, an offset that is gone, instances that come and go."""
import json
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from conftest import ROOT
from rpc_stubs import stubs
from test_disk_full import small_disk  # noqa: F401, a fixture

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("feed")
    path, model = crash.make_feed(folder, 6000, 41)
    return model, crash.messages_of(path, pb, 3000)[0]


@pytest.fixture
def lives():
    started = []

    def call(run):
        started.append(crash.Life(run))
        return started[-1]

    yield call
    for life in started:
        if life.process.poll() is None:
            life.process.kill()
            life.process.wait()


def event(i, **more):
    return pb.event.EdgeEvent(src=f"s{i % 9}", dst=f"d{i % 13}", time=1767225600000 + 1000 * i,
                              **more).SerializeToString()


def scores(run):
    return [pb.records.Score.FromString(v) for _, _, v, _ in crash.read_topic(
        run.brokers, run.outputs["scores"])]


def positions(found):
    return sorted((s.position.topic, s.position.partition, s.position.offset) for s in found)


def test_several_topics_and_an_idle_partition(brokers, topic, produce, feed, lives, tmp_path):
    first, second = topic("several", 3), topic("several", 1)
    for partition in (0, 2):  # 1 is idle, and holds nobody back
        produce(first, [event(i) for i in range(100)], partition)
    produce(second, [event(i) for i in range(50)])
    run = crash.Run(tmp_path, brokers, first, feed[0], "several", ("--topics", f"{first},{second}"))
    life = lives(run)
    life.wait_drained(brokers, first)
    life.wait_drained(brokers, second)
    life.kill()
    produce(second, [event(i) for i in range(50, 80)])
    life = lives(run)
    life.wait_drained(brokers, second)
    life.stop()
    assert positions(scores(run)) == sorted(
        [(first, p, o) for p in (0, 2) for o in range(100)] + [(second, 0, o) for o in range(80)])


def test_repeats_headers_and_late_messages(brokers, topic, produce, feed, lives, tmp_path):
    source = topic("headers")
    late = event(-1000000)
    produce(source, [event(1, id="one"), event(2, id="two"), event(3, id="one")])
    produce(source, [b"\xff broken", late], headers=[("trace", b"abc"), ("trace", b"\x00\x01")])
    run = crash.Run(tmp_path, brokers, source, feed[0], "headers",
                    ("--set", "source.id_horizon=1000"))
    life = lives(run)
    life.wait_drained(brokers, source)
    assert life.metrics()["driftline_events_repeated_total"] == 1
    life.kill()
    produce(source, [event(5, id="two"), event(6, id="six")])
    life = lives(run)
    life.wait_drained(brokers, source)
    life.stop()
    published = run.published(pb)
    assert [s.id for s in scores(run)] == ["one", "two", "six"]
    for kind in ("dead_letters", "late"):
        (_, _, value, headers), = published[kind]
        assert [value for name, value in headers if name == "trace"] == [b"abc", b"\x00\x01"]
        assert ("source-topic", source.encode()) in headers
    assert published["late"][0][2] == late
    assert pb.records.DeadLetter.FromString(published["dead_letters"][0][2]).payload == \
        b"\xff broken"


def test_an_offset_that_is_gone_is_an_error_that_names_the_choice(brokers, topic, produce, feed,
                                                                  lives, tmp_path):
    from confluent_kafka.admin import AdminClient
    source = topic("gone")
    produce(source, [event(i) for i in range(20)])
    run = crash.Run(tmp_path, brokers, source, feed[0], "gone")
    life = lives(run)
    life.wait_drained(brokers, source)
    life.stop()
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 3})
    admin.delete_topics([source])[source].result(30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            crash.make_topics(brokers, [source])
            break
        except Exception:  # it is still being deleted
            time.sleep(0.5)
    produce(source, [event(i) for i in range(5)])
    life = lives(run)
    assert life.process.wait(60) != 0
    text = life.log.read_text()
    assert "no longer has the offset" in text and "Choose:" in text and source in text


def test_two_instances_of_one_identity_are_one_too_many(brokers, topic, produce, feed, lives,
                                                        tmp_path):
    source = topic("fenced", 2)
    run = crash.Run(tmp_path, brokers, source, feed[0], "one")
    first = lives(run)
    produce(source, [event(i) for i in range(20)])
    first.wait_drained(brokers, source)
    twin = crash.Run.__new__(crash.Run)
    twin.__dict__.update(run.__dict__)
    twin.name, twin.lives = "two", 0
    twin.flags = [str(tmp_path / "two.db") if f == str(tmp_path / "one.db") else f
                  for f in run.flags]
    second = lives(twin)
    deadline = time.monotonic() + 60
    offset = 20
    while first.process.poll() is None and time.monotonic() < deadline:
        for partition in (0, 1):
            produce(source, [event(offset)], partition)
        offset += 1
        time.sleep(0.3)
    assert first.process.poll() not in (None, 0)
    assert "same identity" in first.log.read_text()
    assert "kafka.group.instance.id" in first.log.read_text()
    second.wait_drained(brokers, source)
    second.stop()
    found = positions(scores(run))
    assert len(set(found)) == len(found)
    assert len(found) == sum(crash.end_offsets(brokers, source).values())


def test_a_transaction_that_took_too_long_is_no_reason_to_end(brokers, topic, feed, lives,
                                                              tmp_path):
    model, messages = feed
    source = topic("slow")
    run = crash.Run(tmp_path, brokers, source, model, "crashed",
                    ("--set", "kafka.transaction.timeout.ms=2000", "--set",
                     "kafka.session.timeout.ms=30000"))
    life = lives(run)
    share = len(messages) // 4
    for part in range(4):  # each stop finds events that it comes between
        before = (life.metrics() or {}).get("driftline_events_total", 0)
        crash.publish(brokers, source, messages[part * share:][:share if part < 3 else None],
                      part * share)
        while (life.metrics() or {}).get("driftline_events_total", 0) in (before, 0):
            life.look()
        life.process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        life.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
    life.wait_drained(brokers, source)
    replaced = life.log.read_text().count("the producer is replaced")
    life.stop()
    found = positions(scores(run))
    print(f"{replaced} producers replaced")
    assert len(set(found)) == len(found)
    others = sum(len(crash.read_topic(brokers, run.outputs[k])) for k in ("dead_letters", "late"))
    assert len(found) + others == len(messages)


def test_partitions_move_between_instances_and_nothing_is_lost_or_repeated(
        brokers, topic, produce, feed, lives, tmp_path):
    source = topic("moving", 4)
    run = crash.Run(tmp_path, brokers, source, feed[0], "a",
                    ("--set", "kafka.group.instance.id=a"))
    other = crash.Run.__new__(crash.Run)
    other.__dict__.update(run.__dict__)
    other.name, other.lives = "b", 0
    other.flags = [f.replace("/a.db", "/b.db").replace("group.instance.id=a",
                                                       "group.instance.id=b") for f in run.flags]
    sent = 0

    def more(count):
        nonlocal sent
        for partition in range(4):
            produce(source, [event(4 * i + partition) for i in range(sent, sent + count)],
                    partition)
        sent += count

    def taken(life):
        with urllib.request.urlopen(f"http://{life.http}/api/status", timeout=5) as answer:
            return json.load(answer)["feed"]["events"]

    def windows(life):
        """Without what depends on the order in which the two met the partitions."""
        found = {}
        for node, value in run.windows(life, pb, [f"s{i}" for i in range(9)] +
                                       [f"d{i}" for i in range(13)]).items():
            window = pb.service.GetWindowResponse.FromString(value)
            for interaction in window.interactions:
                interaction.seq = 0
            window.first_time = window.last_time = 0  # of the first and last that arrived
            found[node] = window
        return found

    def owns(life):
        return (life.metrics() or {}).get("driftline_source_partitions", 0)

    def until(condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            for life in (a, b):
                if life and life.process.poll() is not None:
                    pytest.fail(f"{what}: ended\n{life.log.read_text()[-2000:]}")
            assert time.monotonic() < deadline, what
            more(5)
            time.sleep(0.2)

    def lags(life):
        """Partitions that the instance tells a lag of."""
        return {int(m[1]) for m in (re.match(
            r'driftline_source_lag_records{topic="%s",partition="(\d)"}' % source, name)
            for name in life.metrics() or {}) if m}

    a, b = lives(run), None
    until(lambda: owns(a) == 4 and lags(a) == {0, 1, 2, 3}, "the first takes all")
    b = lives(other)
    until(lambda: owns(a) == 2 and owns(b) == 2, "the second takes half")
    until(lambda: len(lags(a)) == len(lags(b)) == 2 and lags(a) | lags(b) == {0, 1, 2, 3},
          "each tells the lag of what it owns, and of nothing else")
    deadline = time.monotonic() + 60  # each follows what the other has published
    while not taken(a) == taken(b) == 4 * sent:
        assert time.monotonic() < deadline, (taken(a), taken(b), 4 * sent)
        time.sleep(0.2)
    assert windows(a) == windows(b)
    more(100)
    a.kill()
    a = None
    killed = time.monotonic()
    until(lambda: owns(b) == 4, "the survivor takes over")
    print(f"taken over after {time.monotonic() - killed:.1f} s (session timeout 6 s)")
    assert time.monotonic() - killed < 6 + 5
    more(50)
    a = lives(run)  # with its own, now old, store
    until(lambda: owns(a) == 2 and owns(b) == 2, "it comes back")
    more(50)
    deadline = time.monotonic() + 60
    while not taken(a) == taken(b) == 4 * sent:
        assert time.monotonic() < deadline, (taken(a), taken(b), 4 * sent)
        time.sleep(0.2)
    assert windows(a) == windows(b)
    b.stop()
    b = None
    until(lambda: owns(a) == 4, "the first has all again")
    a.wait_drained(brokers, source)
    a.stop()
    found = positions(scores(run))
    lost = {(source, p, o) for p in range(4) for o in range(sent)} - set(found)
    assert len(found) - len(set(found)) == 0
    assert sorted(lost) == []


def test_partitions_are_paused_while_nothing_fits_and_go_on_afterwards(
        brokers, topic, small_disk, start, tmp_path):
    from confluent_kafka import Producer
    folder, wrapper = small_disk
    source, events = topic("paused", 2), 200000
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "log_level": 3})
    for i in range(events):
        producer.produce(source, pb.event.EdgeEvent(
            src=f"s{i % 1999}", dst=f"d{i * 7 % 1777}", time=1767225600000 + i).SerializeToString(),
            partition=i % 2)
        producer.poll(0)
    assert producer.flush(60) == 0
    service = start("serve", "--brokers", brokers, "--topics", source, "--time-unit", "ms",
                    "--store", folder / "s.db", "--set", f"kafka.group.id={source}", "--set",
                    "kafka.session.timeout.ms=6000", ready=None, program=wrapper)

    def metric(name):
        for line in service.get("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        return None

    service.wait("partitions are paused",
                 lambda: metric("driftline_source_partitions_paused") == 2, 90)
    assert metric("driftline_store_full") == 1
    taken, begun = metric("driftline_events_total"), service.log_text().count("] from ")
    assert taken < events
    time.sleep(9)  # longer than a member may be silent
    assert metric("driftline_source_partitions_paused") == 2
    assert metric("driftline_events_total") == taken
    (Path("/proc") / f"{service.process.pid}/root{folder}/ballast").unlink()
    service.wait("everything is taken in", lambda: metric("driftline_events_total") == events, 90)
    assert metric("driftline_source_partitions_paused") == 0
    assert service.log_text().count("] from ") == begun, "it fell out of the group"
    assert service.stop() == 0
