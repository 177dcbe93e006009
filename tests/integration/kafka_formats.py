"""What messages look like in the field: Confluent framing, CloudEvents, compressed
batches, messages without a value, a clock that runs ahead."""
import json
import sys
import time

import pytest
from confluent_kafka import Producer

from conftest import ROOT
from rpc_stubs import stubs

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()
EPOCH_MS = 1767225600000


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return crash.make_feed(tmp_path_factory.mktemp("feed"), 6000, 43)[1]


@pytest.fixture
def take(brokers, topic, model, tmp_path):
    """Takes in what is on the topic; returns (what was published, metrics at the end)."""
    started = []

    def call(source, *more):
        run = crash.Run(tmp_path, brokers, source, model, f"r{len(started)}", more)
        life = crash.Life(run)
        started.append(life)
        life.wait_drained(brokers, source)
        metrics = life.metrics()
        life.stop()
        return run.published(pb), metrics

    yield call
    for life in started:
        if life.process.poll() is None:
            life.process.kill()
            life.process.wait()


def event(i, **more):
    return pb.event.EdgeEvent(src=f"s{i % 9}", dst=f"d{i % 13}", time=EPOCH_MS + 1000 * i, **more)


def ids(published):
    return [pb.records.Score.FromString(value).id for _, _, value, _ in published["scores"]]


def letters(published):
    return [pb.records.DeadLetter.FromString(value) for _, _, value, _ in
            published["dead_letters"]]


def test_confluent_framing(topic, produce, take):
    source = topic("framed")
    header = b"\x00" + (70001).to_bytes(4, "big")
    produce(source, [header + b"\x00" + event(1, id="lone zero").SerializeToString(),
                     header + b"\x02\x00" + event(2, id="one index").SerializeToString(),
                     event(3, id="bare").SerializeToString(),
                     header + b"\x04\x02\x00" + event(4, id="another message of the schema").SerializeToString(),
                     header, b"\x00\x00"])
    published, _ = take(source, "--encoding", "confluent")
    assert ids(published) == ["lone zero", "one index"]
    assert [l.position.offset for l in letters(published)] == [2, 3, 4, 5]
    assert "not number 0 of its schema (schema id 70001)" in letters(published)[1].reason


def test_cloudevents_binary_and_structured(topic, produce, take):
    source = topic("cloud")

    def body(i, **more):
        return {"src": f"s{i}", "dst": f"d{i}", "time": EPOCH_MS + i, **more}

    def envelope(number, data):
        return json.dumps({"specversion": "1.0", "id": number, "type": "edge",
                           "source": "/here", **data}).encode()

    attributes = [("ce_specversion", b"1.0"), ("ce_type", b"edge"), ("ce_source", b"/here")]
    json_type = ("content-type", b"application/json; charset=utf-8")
    produce(source, [json.dumps(body(1)).encode()],
            headers=[*attributes, ("ce_id", b"binary"), json_type])
    produce(source, [envelope("structured", {"data": body(2)}),
                     envelope("base64", {"data_base64": "eyJzcmMiOiJhIiwiZHN0IjoiYiIsInRpbWUiOjE3"
                                                        "NjcyMjU2MDAwMDN9"})],
            headers=[("content-type", b"application/cloudevents+json")])
    produce(source, [json.dumps(body(4, id="plain")).encode()])
    produce(source, [envelope("no data", {})],
            headers=[("content-type", b"application/cloudevents+json")])
    published, _ = take(source, "--encoding", "json")
    # An id is unique within its source.
    assert ids(published) == ["/here binary", "/here structured", "/here base64", "plain"]
    assert [l.position.offset for l in letters(published)] == [4]


def test_cloudevents_binary_around_protobuf(topic, produce, take):
    source = topic("cloud")
    produce(source, [event(1).SerializeToString()],
            headers=[("ce_specversion", b"1.0"), ("ce_type", b"edge"), ("ce_source", b"/here"),
                     ("ce_id", b"enveloped"), ("content-type", b"application/protobuf")])
    assert ids(take(source)[0]) == ["/here enveloped"]


def test_compressed_batches_in_and_out(brokers, topic, take):
    source, sent = topic("packed"), []
    for codec in "gzip", "snappy", "lz4", "zstd":
        producer = Producer({"bootstrap.servers": brokers, "compression.type": codec,
                             "linger.ms": 200, "log_level": 3})
        for _ in range(150):
            producer.produce(source, event(len(sent), id=f"{codec}-{len(sent)}")
                             .SerializeToString())
            sent.append(f"{codec}-{len(sent)}")
        assert producer.flush(30) == 0
    published, _ = take(source, "--set", "kafka.compression.type=zstd")
    assert ids(published) == sent


def test_messages_without_a_value_as_configured(brokers, topic, take):
    source = topic("tombstones")
    producer = Producer({"bootstrap.servers": brokers, "log_level": 3})
    for key, value in ("a", event(1, id="a")), ("gone", None), ("b", event(2, id="b")), ("c", b""):
        producer.produce(source, value if isinstance(value, (bytes, type(None)))
                         else value.SerializeToString(), key=key)
    assert producer.flush(30) == 0
    published, _ = take(source)
    assert ids(published) == ["a", "b"]
    assert [(l.position.offset, "tombstone" in l.reason) for l in letters(published)] == \
        [(1, True), (3, True)]
    published, metrics = take(source, "--set", "source.tombstones=skip")
    assert ids(published) == ["a", "b"]
    assert [l.position.offset for l in letters(published)] == [3]  # empty is not without a value
    assert metrics["driftline_events_tombstones_total"] == 1


def test_a_clock_that_runs_ahead_makes_nobody_late(topic, produce, take):
    source = topic("ahead")
    now = int(time.time() * 1000)
    ahead = pb.event.EdgeEvent(src="s1", dst="d1", time=now + 3600 * 1000)
    honest = [pb.event.EdgeEvent(src="s1", dst="d1", time=now - 1000 + i, id=f"{i}")
              for i in range(3)]
    produce(source, [e.SerializeToString() for e in (ahead, *honest)])
    published, metrics = take(source, "--set", "source.lateness=0")
    assert ids(published) == ["0", "1", "2"]
    assert metrics["driftline_events_late_total"] == 0
    letter, = letters(published)
    assert (letter.field, letter.position.offset) == ("time", 0)
    assert "source.future_skew" in letter.reason
    assert sum(v for k, v in metrics.items() if k.startswith("driftline_dead_letters_total")) == 1


def test_equal_times_keep_the_order_of_arrival(topic, produce, take):
    source = topic("ties")
    produce(source, [pb.event.EdgeEvent(src="s", dst=f"d{i}", time=EPOCH_MS, id=f"{i}")
                     .SerializeToString() for i in range(40)])
    published, metrics = take(source, "--set", "source.lateness=0")
    assert ids(published) == [f"{i}" for i in range(40)]
    histories = [pb.records.Score.FromString(v).src_history for _, _, v, _ in published["scores"]]
    assert histories == list(range(40))
    assert metrics["driftline_events_late_total"] == 0
