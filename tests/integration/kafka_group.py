"""Three instances of one group: one is killed in the middle, and one speaks for the feed."""
import sys
import time

import pytest

from conftest import ROOT
from rpc_stubs import stubs

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()
PARTITIONS, SESSION_SECONDS, STALL_SECONDS = 3, 6, 5


def event(i):
    return pb.event.EdgeEvent(src=f"s{i % 9}", dst=f"d{i % 13}",
                              time=1767225600000 + 1000 * i).SerializeToString()


def instance(run, name, tmp_path):
    other = crash.Run.__new__(crash.Run)
    other.__dict__.update(run.__dict__)
    other.name, other.lives = name, 0
    other.flags = [f.replace("/a.db", f"/{name}.db").replace("instance.id=a",
                                                             f"instance.id={name}")
                   for f in run.flags]
    return other


def test_one_of_three_is_killed_and_one_raises_the_alerts(brokers, topic, produce, tmp_path):
    _, model = crash.make_feed(tmp_path, 6000, 43)
    source = topic("three", PARTITIONS)
    run = crash.Run(tmp_path, brokers, source, model, "a",
                    ("--set", "kafka.group.instance.id=a", "--set",
                     f"drift.stall={STALL_SECONDS}s", "--set", "drift.surprise_bits=0"))
    lives = {name: crash.Life(instance(run, name, tmp_path)) for name in "abc"}
    sent = 0

    def more(count):
        nonlocal sent
        for partition in range(PARTITIONS):
            produce(source, [event(PARTITIONS * i + partition) for i in range(sent, sent + count)],
                    partition)
        sent += count

    def figure(name, metric):
        return (lives[name].metrics() or {}).get(metric, 0)

    def owned():
        return [int(figure(name, "driftline_source_partitions")) for name in lives]

    def until(condition, what, seconds=90, feeding=True):
        deadline = time.monotonic() + seconds
        while not condition():
            for life in lives.values():
                life.look()
            assert time.monotonic() < deadline, what
            if feeding:
                more(5)
            time.sleep(0.2)

    try:
        until(lambda: owned() == [1, 1, 1], "each has a partition")
        more(100)
        lives.pop("b").kill()
        killed = time.monotonic()
        until(lambda: sum(owned()) == PARTITIONS, "the others take over")
        taken_over = time.monotonic() - killed
        print(f"taken over after {taken_over:.1f} s (session timeout {SESSION_SECONDS} s)")
        assert taken_over < SESSION_SECONDS + 5
        lives["d"] = crash.Life(instance(run, "d", tmp_path))
        until(lambda: owned() == [1, 1, 1], "a new one gets its share")
        more(50)
        until(lambda: all(figure(name, "driftline_outbox_rows") == 0 for name in lives) and
              sum(len(crash.read_topic(brokers, run.outputs[k])) for k in ("scores",)) ==
              PARTITIONS * sent, "all is scored", feeding=False)
        time.sleep(3 * STALL_SECONDS)
        for life in lives.values():
            life.stop()
    finally:
        for life in lives.values():
            if life.process.poll() is None:
                life.process.kill()
                life.process.wait()
    found = [pb.records.Score.FromString(v).position for _, _, v, _ in
             crash.read_topic(brokers, run.outputs["scores"])]
    assert len({(p.partition, p.offset) for p in found}) == len(found) == PARTITIONS * sent
    stalls = [a.seq for a in (pb.records.Alert.FromString(v) for _, _, v, _ in
                              crash.read_topic(brokers, run.outputs["alerts"]))
              if a.kind == pb.records.ALERT_KIND_FEED_STALLED and a.raised]
    if not stalls:
        pytest.fail("nobody said that the feed stalled")
    assert len(set(stalls)) == len(stalls), stalls
