"""Every method of the service, with stock Python stubs generated from the
project's .proto files, against a backend that answers simple functions."""
import signal
import subprocess
import threading
import time

import grpc
import pytest

from conftest import BUILD
from rpc_stubs import stubs

pb = stubs()
S = pb.service


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [str(BUILD / "tests" / "rpc-backend"), "--set", "source.kind=stdin",
             "--set", "source.time_unit=ms", "--set", "store.features=0",
             "--set", "rpc.listen=127.0.0.1:0", *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(self.process.stderr.read())

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
        self.process.stdin = None
        _, self.errors = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, self.errors


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return pb.service_grpc.LinkPredictionStub(channel)


def code_of(call, *arguments, **named):
    with pytest.raises(grpc.RpcError) as caught:
        result = call(*arguments, **named)
        if hasattr(result, "__next__"):
            next(result)
    return caught.value.code(), caught.value.details()


def test_score(stub):
    answer = stub.Score(S.ScoreRequest(pairs=[S.Pair(src="ab", dst="c"), S.Pair(src="nobody", dst="x")]))
    assert [s.probability for s in answer.scores] == [1 / 4, 1 / 8]
    assert [s.surprise_bits for s in answer.scores] == [3, 7]
    assert (answer.scores[0].src_known, answer.scores[1].src_known) == (True, False)
    assert answer.scores[0].dst_history == 1
    assert answer.model_version == "0123456789abcdef"


def test_score_of_ten_thousand_pairs_and_not_one_more(stub):
    pairs = [S.Pair(src=f"s{i}", dst="d") for i in range(10_000)]
    assert len(stub.Score(S.ScoreRequest(pairs=pairs)).scores) == 10_000
    code, details = code_of(stub.Score, S.ScoreRequest(pairs=pairs + pairs[:1]))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "pairs" in details


@pytest.mark.parametrize("request_, field", [
    (S.ScoreRequest(), "pairs"),
    (S.ScoreRequest(pairs=[S.Pair(src="", dst="x")]), "src"),
    (S.ScoreRequest(pairs=[S.Pair(src="x" * 257, dst="x")]), "src"),
])
def test_bad_score_request_names_the_field(stub, request_, field):
    code, details = code_of(stub.Score, request_)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert field in details


def test_bytes_that_are_no_message(channel):
    call = channel.unary_unary("/driftline.v1.LinkPrediction/Score")
    code, details = code_of(call, b"\x0a\xff\xff\xff\xff\x0f")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details


def test_full_backend_is_resource_exhausted(stub):
    code, details = code_of(stub.Score, S.ScoreRequest(pairs=[S.Pair(src="busy", dst="x")]))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "try again" in details


def test_top_k(stub):
    answer = stub.TopK(S.TopKRequest(node="abc"))
    assert [c.node for c in answer.candidates] == [f"node{i}" for i in range(10)]
    assert answer.node == "abc" and answer.known and answer.history == 3
    assert answer.candidates[1].probability == 0.5
    answer = stub.TopK(S.TopKRequest(node="nobody", k=2, candidates=["x", "y", "z"], only_given=True))
    assert [c.node for c in answer.candidates] == ["x", "y"] and not answer.known
    code, details = code_of(stub.TopK, S.TopKRequest(node="abc", only_given=True))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "only_given" in details
    code, details = code_of(stub.TopK, S.TopKRequest(node="abc", k=1001))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "k" in details


def test_get_window(stub):
    answer = stub.GetWindow(S.GetWindowRequest(node="abc"))
    assert answer.known and answer.events == 3 and answer.window_max == 64
    assert [i.direction for i in answer.interactions] == [S.DIRECTION_OUT, S.DIRECTION_IN, S.DIRECTION_OUT]
    assert list(answer.interactions[0].features) == [0.5, -1]
    assert answer.time_unit == "ms"
    assert len(stub.GetWindow(S.GetWindowRequest(node="abc", limit=2)).interactions) == 2
    assert not stub.GetWindow(S.GetWindowRequest(node="nobody")).known


def test_explain(stub):
    answer = stub.Explain(S.ExplainRequest(src="ab", dst="c", per_head=True))
    assert [t.attention for t in answer.tokens] == [0.75, 0.25]
    assert answer.tokens[0].summary and not answer.tokens[0].HasField("interaction")
    assert answer.tokens[1].interaction.peer == "ab"
    assert list(answer.tokens[1].per_head) == [0.1, 0.2, 0.3, 0.4]
    assert list(answer.entropy_nats) == [0.5, 0.6]
    assert answer.score.probability == 0.25


def test_drift_model_and_forget(stub):
    drift = stub.GetDrift(S.GetDriftRequest())
    assert drift.ready and drift.statistic == 0.02 and drift.features[0].name == "gap"
    assert drift.quality.ap == 0.9
    assert stub.RenewReference(S.RenewReferenceRequest()).reference_size == 1000
    model = stub.GetModel(S.GetModelRequest())
    assert (model.architecture, model.parameters, model.kernels) == ("diffdyg", 12345, "avx2")
    assert list(model.validation.entropy_nats) == [0.5, 0.25]
    assert stub.Forget(S.ForgetRequest(node="abc")).events == 3
    assert not stub.Forget(S.ForgetRequest(node="nobody")).found


def test_deadline_and_cancellation_reach_the_backend():
    server = Server()
    with grpc.insecure_channel(server.address) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        slow = S.ScoreRequest(pairs=[S.Pair(src="slow", dst="x")])
        code, _ = code_of(stub.Score, slow, timeout=0.2)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        call = stub.Score.future(slow)
        time.sleep(0.2)
        call.cancel()
        open_call = stub.Score.future(slow)
        time.sleep(0.2)
        server.process.stdin.close()
        assert open_call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    server.stop()
    assert "cancelled 3" in server.errors


def event(src="a", dst="b", time=1_700_000_000_000, **more):
    return pb.event.EdgeEvent(src=src, dst=dst, time=time, **more)


def test_ingest_acknowledges_what_is_durable(stub):
    batches = (S.IngestRequest(events=[event(src=f"{b}-{i}") for i in range(1000)]) for b in range(20))
    answer = stub.Ingest(batches)
    assert (answer.accepted, answer.rejected, answer.repeated) == (20_000, 0, 0)
    assert answer.seq >= 20_000
    assert stub.Ingest(iter([])).accepted == 0


def test_broken_events_are_counted_and_the_stream_goes_on(stub):
    nan = event(weight=float("nan"))
    answer = stub.Ingest(iter([
        S.IngestRequest(events=[event(), nan, event()]),
        S.IngestRequest(events=[event(src="")]),
        S.IngestRequest(events=[event()]),
    ]))
    assert (answer.accepted, answer.rejected) == (3, 2)
    assert "weight" in answer.first_reason
    code, details = code_of(stub.Ingest, iter([S.IngestRequest(events=[event()] * 1001)]))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "events" in details


def test_ingest_that_fails_says_what_is_durable(stub):
    code, details = code_of(stub.Ingest, iter([
        S.IngestRequest(events=[event(), event()]), S.IngestRequest(events=[event(src="busy")])]))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "2 events" in details


def subscribe(call, count, results):
    thread = threading.Thread(target=lambda: results.extend(next(call) for _ in range(count)))
    thread.start()
    return thread


def test_subscribers_get_what_they_asked_for(stub):
    everything = stub.SubscribeScores(S.SubscribeScoresRequest())
    some = stub.SubscribeScores(S.SubscribeScoresRequest(nodes=["x2", "y3"], surprise_bits_min=3))
    likely = stub.SubscribePredictions(S.SubscribePredictionsRequest(probability_min=0.5))
    for call in (everything, some, likely):
        call.initial_metadata()  # they are subscribed from here on
    stub.Ingest(iter([S.IngestRequest(events=[event(src=f"x{i}", dst=f"y{i}") for i in range(5)])]))
    assert [next(everything).score.src for _ in range(5)] == [f"x{i}" for i in range(5)]
    assert [next(some).score.src for _ in range(2)] == ["x2", "x3"]
    message = next(likely)
    assert message.prediction.node == "x0"
    assert [c.node for c in message.prediction.candidates] == ["y0"]
    for call in (everything, some, likely):
        call.cancel()


def test_alerts_and_the_standing_one(stub):
    alerts = stub.SubscribeAlerts(S.SubscribeAlertsRequest(include_standing=True))
    alerts.initial_metadata()
    stub.Ingest(iter([S.IngestRequest(events=[event(type="alert")])]))
    first = next(alerts).alert
    assert (first.kind, first.raised) == (pb.records.ALERT_KIND_TEMPORAL_SHIFT, True)
    later = stub.SubscribeAlerts(S.SubscribeAlertsRequest(include_standing=True))
    assert next(later).alert.number == first.number
    stub.RenewReference(S.RenewReferenceRequest())
    alerts.cancel()
    later.cancel()


def test_slow_subscriber_hears_how_many_it_lost(stub):
    """The counts of what came and of what was dropped add up, in order."""
    count = 30_000
    options = [("grpc.max_receive_message_length", 1 << 20)]
    call = stub.SubscribeScores(S.SubscribeScoresRequest())
    call.initial_metadata()
    events = [event(src="s" * 200 + str(i), dst="d") for i in range(1000)]
    for _ in range(count // 1000):  # without reading
        stub.Ingest(iter([S.IngestRequest(events=events)]))
    stub.Ingest(iter([S.IngestRequest(events=[event(src="last")])]))
    received = dropped = 0
    last_seq = -1
    for message in call:
        received += 1
        dropped += message.dropped
        assert message.score.seq > last_seq
        last_seq = message.score.seq
        if message.score.src == "last":
            break
    call.cancel()
    assert dropped > 0
    assert received + dropped == count + 1
    del options


def test_health(channel, stub):
    health = pb.health_grpc.HealthStub(channel)
    Request, Response = pb.health.HealthCheckRequest, pb.health.HealthCheckResponse
    assert health.Check(Request()).status == Response.SERVING
    name = "driftline.v1.LinkPrediction"
    assert health.Check(Request(service=name)).status == Response.SERVING
    assert code_of(health.Check, Request(service="other"))[0] == grpc.StatusCode.NOT_FOUND
    watch = health.Watch(Request(service=name))
    unknown = health.Watch(Request(service="other"))
    assert next(watch).status == Response.SERVING
    assert next(unknown).status == Response.SERVICE_UNKNOWN
    stub.Ingest(iter([S.IngestRequest(events=[event(type="not-ready")])]))
    assert next(watch).status == Response.NOT_SERVING
    assert health.Check(Request()).status == Response.NOT_SERVING
    stub.Ingest(iter([S.IngestRequest(events=[event(type="ready")])]))
    assert next(watch).status == Response.SERVING
    watch.cancel()
    unknown.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(channel, version):
    from google.protobuf import descriptor_pb2
    messages = pb.reflection if version == "v1" else pb.reflection_alpha
    grpc_module = pb.reflection_grpc if version == "v1" else pb.reflection_alpha_grpc
    stub = grpc_module.ServerReflectionStub(channel)
    Request = messages.ServerReflectionRequest
    listed, symbol, missing = stub.ServerReflectionInfo(iter([
        Request(list_services=""),
        Request(file_containing_symbol="driftline.v1.LinkPrediction"),
        Request(file_containing_symbol="no.such.Thing"),
    ]))
    names = {s.name for s in listed.list_services_response.service}
    assert {"driftline.v1.LinkPrediction", "grpc.health.v1.Health",
            f"grpc.reflection.{version}.ServerReflection"} <= names
    files = [descriptor_pb2.FileDescriptorProto.FromString(f)
             for f in symbol.file_descriptor_response.file_descriptor_proto]
    methods = {m.name for f in files for s in f.service for m in s.method}
    assert {"Score", "TopK", "SubscribeAlerts"} <= methods
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_shutdown_ends_streams_with_a_reason():
    server = Server()
    with grpc.insecure_channel(server.address) as channel:
        call = pb.service_grpc.LinkPredictionStub(channel).SubscribeScores(S.SubscribeScoresRequest())
        call.initial_metadata()
        watch = pb.health_grpc.HealthStub(channel).Watch(pb.health.HealthCheckRequest())
        assert next(watch).status == 1
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in caught.value.details()
        assert next(watch).status == 2  # NOT_SERVING
    server.stop()
