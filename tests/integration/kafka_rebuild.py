"""A store that was lost, or restored from an old copy, is filled from the topic;
what readers have is not published again. And output that comes from no Kafka
message is delivered once as well."""
import shutil
import sys
import time
import uuid

import pytest

from conftest import ROOT
from rpc_stubs import stubs

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()
EVENTS = 1500


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    """The CSV, the model, the messages and the nodes."""
    folder = tmp_path_factory.mktemp("feed")
    path, model = crash.make_feed(folder, 6000, 21)
    return path, model, *crash.messages_of(path, pb, EVENTS)


@pytest.fixture
def source(brokers):
    name = f"rebuild-{uuid.uuid4().hex[:8]}"
    crash.make_topics(brokers, [name])
    return name


@pytest.fixture
def lives():
    """Starts lives of a run; what is left of them is killed."""
    started = []

    def call(run):
        started.append(crash.Life(run))
        return started[-1]

    yield call
    for life in started:
        if life.process.poll() is None:
            life.process.kill()
            life.process.wait()


def unnumbered(published):
    """Alerts are numbered by the store that raised them; a new store begins anew."""
    alerts = []
    for partition, key, value, headers in published["alerts"]:
        alert = pb.records.Alert.FromString(value)
        alert.number = 0
        alerts.append((partition, key, alert.SerializeToString(deterministic=True), headers))
    return {**published, "alerts": alerts}


def check_against_calm(run, calm, life, lives, nodes):
    windows = run.windows(life, pb, nodes)
    life.stop()
    undisturbed = lives(calm)
    undisturbed.wait_drained(calm.brokers, calm.topic)
    assert windows == calm.windows(undisturbed, pb, nodes)
    undisturbed.stop()
    found, expected = unnumbered(run.published(pb)), unnumbered(calm.published(pb))
    assert crash.compare(found, expected, EVENTS) == []


def remove_store(folder):
    for path in folder.glob("crashed.db*"):
        path.unlink()


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_store_is_filled_without_publishing_again(brokers, source, feed, lives, tmp_path,
                                                         killed):
    _, model, messages, nodes = feed
    run = crash.Run(tmp_path, brokers, source, model, "crashed")
    crash.publish(brokers, source, messages[:900], 0)
    life = lives(run)
    if killed:
        while not any(name.startswith("driftline_published_total") and value
                      for name, value in (life.metrics() or {}).items()):
            life.look()
        life.kill()
    else:
        life.wait_drained(brokers, source)
        life.stop()
    remove_store(tmp_path)
    crash.publish(brokers, source, messages[900:], 900)
    life = lives(run)
    life.wait_drained(brokers, source)
    assert "nothing published" in life.log.read_text()
    check_against_calm(run, crash.Run(tmp_path, brokers, source, model, "calm"), life, lives, nodes)


def test_an_old_copy_of_the_store_is_filled_without_publishing_again(brokers, source, feed, lives,
                                                                     tmp_path):
    _, model, messages, nodes = feed
    run = crash.Run(tmp_path, brokers, source, model, "crashed")
    crash.publish(brokers, source, messages[:400], 0)
    life = lives(run)
    # A copy with rows in its outbox: as a snapshot of the disk has them.
    while (life.metrics() or {}).get("driftline_events_total", 0) < 100:
        life.look()
    life.kill()
    for path in tmp_path.glob("crashed.db*"):
        shutil.copy(path, tmp_path / f"copy-{path.name}")
    for part in (slice(0, 0), slice(400, 900)):
        crash.publish(brokers, source, messages[part], part.start)
        life = lives(run)
        life.wait_drained(brokers, source)
        life.stop()
    remove_store(tmp_path)
    for path in tmp_path.glob("copy-*"):
        shutil.copy(path, tmp_path / path.name[len("copy-"):])
    crash.publish(brokers, source, messages[900:], 900)
    life = lives(run)
    for _ in range(3):  # and it is killed while it fills itself
        time.sleep(0.7)
        life.kill()
        life = lives(run)
    life.wait_drained(brokers, source)
    check_against_calm(run, crash.Run(tmp_path, brokers, source, model, "calm"), life, lives, nodes)


def test_ingested_events_are_published_once_through_kills(brokers, source, feed, lives, tmp_path):
    import grpc
    _, model, _, _ = feed
    run = crash.Run(tmp_path, brokers, source, model, "crashed")
    sent, acknowledged = 0, set()
    for kill in range(6):
        life = lives(run)
        while not (life.metrics() or {}).get("driftline_ready"):
            life.look()
        with grpc.insecure_channel(life.rpc) as channel:
            stub = pb.service_grpc.LinkPredictionStub(channel)

            def requests():
                nonlocal sent
                for _ in range(12):
                    events = [pb.event.EdgeEvent(src=f"s{i % 7}", dst=f"d{i % 11}", id=f"i{i}",
                                                 time=1767225600000 + i * 1000)
                              for i in range(sent, sent + 10)]
                    sent += 10
                    yield pb.service.IngestRequest(events=events)

            first = sent
            try:
                answers = stub.Ingest(requests(), timeout=20)
                accepted = 0
                for answer in answers if hasattr(answers, "__iter__") else [answers]:
                    accepted += answer.accepted
                acknowledged.update(f"i{i}" for i in range(first, first + accepted))
            except grpc.RpcError:
                pass
        time.sleep(0.1 * kill)
        life.kill()
    life = lives(run)
    life.wait_drained(brokers, source)
    life.stop()
    scores = [pb.records.Score.FromString(value) for _, _, value, _ in run.published(pb)["scores"]]
    assert len(acknowledged) > 300
    assert len({s.seq for s in scores}) == len(scores), "a score was published twice"
    assert len({s.id for s in scores}) == len(scores)
    assert sorted(acknowledged - {s.id for s in scores}) == []


def test_a_file_is_published_once_through_kills(brokers, source, feed, lives, tmp_path):
    path, model, _, _ = feed
    part = tmp_path / "part.csv"
    part.write_text("".join(path.read_text().splitlines(keepends=True)[:EVENTS + 1]))
    more = ("--set", "source.kind=file", "--source", str(part), "--encoding", "csv")
    run = crash.Run(tmp_path, brokers, source, model, "crashed", more)
    for kill in range(6):
        life = lives(run)
        while (life.metrics() or {}).get("driftline_events_total", 0) < 20:
            life.look()
            if kill and (life.metrics() or {}).get("driftline_outbox_rows") == 0:
                break
        time.sleep(0.02 * kill)
        life.kill()
    life = lives(run)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        life.look()
        m = life.metrics() or {}
        if "end of input" in life.log.read_text() and m.get("driftline_outbox_rows") == 0:
            break
        time.sleep(0.2)
    life.stop()
    published = run.published(pb)
    scores = [pb.records.Score.FromString(value) for _, _, value, _ in published["scores"]]
    assert [s.position.offset for s in scores] == list(range(EVENTS))
    assert len(published["predictions"]) == 2 * EVENTS
