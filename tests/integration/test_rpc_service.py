"""The program itself, asked by stock Python stubs: a model trained on the first
part of a simulated feed, served over the rest."""
import csv
import json
import time

import grpc
import pytest

from rpc_stubs import stubs

pb = stubs()
S = pb.service
EVENTS = 2500


@pytest.fixture(scope="module")
def feed(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("feed")
    run("simulate", "--out", folder / "feed.csv", "--events", EVENTS, "--nodes", 100)
    run("train", folder / "feed.csv", "--out", folder / "model.safetensors", "--epochs", 2,
        "--positives", 1500, "--validation", 300, "--threads", 1)
    with open(folder / "feed.csv") as rows:
        events = list(csv.DictReader(rows))
    return folder, events


@pytest.fixture
def service(start, feed, tmp_path):
    folder, _ = feed
    return start("serve", "--set", "source.kind=file", "--set", f"source.path={folder}/feed.csv",
                 "--set", "log.level=warn", "--encoding", "csv", "--time-unit", "ms", "--model",
                 folder / "model.safetensors", "--store", tmp_path / "s.db")


@pytest.fixture
def channel(service):
    with grpc.insecure_channel(service.rpc) as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return pb.service_grpc.LinkPredictionStub(channel)


def all_taken(service, stub, count=EVENTS):
    service.wait("all events are in", lambda: stub.GetDrift(S.GetDriftRequest()).events >= count, 120)


def test_the_methods_answer_from_the_feed(service, channel, stub, feed):
    _, events = feed
    all_taken(service, stub)
    src, dst = events[-1]["src"], events[-1]["dst"]
    seen = sum(src in (e["src"], e["dst"]) for e in events)
    between = sum({e["src"], e["dst"]} == {src, dst} for e in events)

    scores = stub.Score(S.ScoreRequest(pairs=[S.Pair(src=src, dst=dst), S.Pair(src="new", dst=dst)]))
    assert 0 < scores.scores[0].probability < 1
    assert (scores.scores[0].src_history, scores.scores[0].pair_history) == (seen, between)
    assert (scores.scores[1].src_known, scores.scores[1].dst_known) == (False, True)
    assert scores.seq == EVENTS

    top = stub.TopK(S.TopKRequest(node=src, k=5))
    probabilities = [c.probability for c in top.candidates]
    assert len(probabilities) == 5 and probabilities == sorted(probabilities, reverse=True)
    assert src not in [c.node for c in top.candidates]
    again = stub.Score(S.ScoreRequest(pairs=[S.Pair(src=src, dst=c.node) for c in top.candidates]))
    assert [s.probability for s in again.scores] == probabilities

    # Unknown candidates score as in Score, each once, under their own names.
    given = ["new1", dst, "new2", "new1", src, "new2"]
    some = stub.TopK(S.TopKRequest(node=src, candidates=given, only_given=True))
    assert sorted(c.node for c in some.candidates) == sorted(["new1", "new2", dst]) and some.scored == 3
    pairs = stub.Score(S.ScoreRequest(pairs=[S.Pair(src=src, dst=c.node) for c in some.candidates]))
    assert [s.probability for s in pairs.scores] == [c.probability for c in some.candidates]
    lost = stub.TopK(S.TopKRequest(node="new1", candidates=given, only_given=True))
    assert not lost.known and {c.node for c in lost.candidates} == {"new2", dst, src}

    window = stub.GetWindow(S.GetWindowRequest(node=src))
    mine = [e for e in events if src in (e["src"], e["dst"])][::-1][:window.window_max]
    assert [i.time for i in window.interactions] == [int(e["time"]) for e in mine]
    assert window.events == seen and window.time_unit == "ms"

    explanation = stub.Explain(S.ExplainRequest(src=src, dst=dst))
    assert sum(t.attention for t in explanation.tokens) == pytest.approx(1, abs=1e-3)
    assert explanation.score.probability == scores.scores[0].probability
    assert not any(t.per_head for t in explanation.tokens)
    detailed = stub.Explain(S.ExplainRequest(src=src, dst=dst, per_head=True))
    assert [t.attention for t in detailed.tokens] == [t.attention for t in explanation.tokens]
    maps = detailed.layers * detailed.heads
    assert maps >= 2 and len({tuple(t.per_head) for t in detailed.tokens}) > 1
    for token in detailed.tokens:
        assert sum(token.per_head) / maps == pytest.approx(token.attention, abs=1e-6)
    for j in range(maps):
        assert sum(t.per_head[j] for t in detailed.tokens) == pytest.approx(1, abs=1e-5)

    model = stub.GetModel(S.GetModelRequest())
    assert model.version == scores.model_version and model.data_edges == EVENTS

    drift = stub.GetDrift(S.GetDriftRequest())
    assert drift.events == EVENTS and drift.window > 0 and drift.features
    assert stub.RenewReference(S.RenewReferenceRequest()).reference_size > 0

    health = pb.health_grpc.HealthStub(channel)
    assert health.Check(pb.health.HealthCheckRequest()).status == 1
    assert service.stop() == 0


def test_ingested_events_are_durable_scored_and_streamed(service, stub, feed, start, tmp_path):
    folder, events = feed
    all_taken(service, stub)
    scores = stub.SubscribeScores(S.SubscribeScoresRequest(nodes=["ingest-a"]))
    scores.initial_metadata()
    at = int(events[-1]["time"])
    broken = pb.event.EdgeEvent(src="ingest-a", dst="", time=at)
    answer = stub.Ingest(iter([
        S.IngestRequest(events=[pb.event.EdgeEvent(src="ingest-a", dst=f"d{i}", time=at + i) for i in range(50)]),
        S.IngestRequest(events=[broken, pb.event.EdgeEvent(src="ingest-a", dst="last", time=at + 60)]),
    ]))
    assert (answer.accepted, answer.rejected, answer.seq) == (51, 1, EVENTS + 51)
    got = [next(scores).score for _ in range(51)]
    assert [s.seq for s in got] == list(range(EVENTS, EVENTS + 51))
    assert got[-1].dst == "last"
    service.kill()  # acknowledged means durable
    again = start("serve", "--set", "source.kind=file", "--set", f"source.path={folder}/feed.csv",
                  "--encoding", "csv", "--time-unit", "ms", "--model", folder / "model.safetensors",
                  "--store", tmp_path / "s.db")
    with grpc.insecure_channel(again.rpc) as channel:
        window = pb.service_grpc.LinkPredictionStub(channel).GetWindow(S.GetWindowRequest(node="ingest-a"))
    assert window.events == 51
    assert again.stop() == 0


def test_calls_under_load_while_it_ends(service, stub, feed):
    """No call that was accepted breaks half-way when the service is told to end."""
    _, events = feed
    all_taken(service, stub)
    request = S.ScoreRequest(pairs=[S.Pair(src=e["src"], dst=e["dst"]) for e in events[-20:]])
    calls = [stub.Score.future(request, timeout=30) for _ in range(100)]
    time.sleep(0.05)
    service.process.terminate()
    answered = 0
    for call in calls:
        try:
            answered += len(call.result().scores) == 20
        except grpc.RpcError as error:
            # Refused before it was accepted; a stock client would try elsewhere.
            assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert answered > 0
    assert service.process.wait(30) == 0


def test_our_own_client(service, stub, feed, run):
    _, events = feed
    all_taken(service, stub)
    node = events[-1]["src"]
    top = json.loads(run("query", "topk", node, "--server", service.rpc, "--json").stdout)
    assert len(top["candidates"]) == 10
    assert "events" in run("query", "window", node, "--server", service.rpc).stdout
    # All that are scored: a node without history need not be among the best ten.
    assert "never-seen" in run("query", "topk", node, "--k", "200", "--candidates", "never-seen", "--server", service.rpc).stdout
