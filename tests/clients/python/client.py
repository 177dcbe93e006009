"""The stock Python client against a running driftline.

    client.py MODE ADDRESS STUBS-FOLDER [CERTS-FOLDER] [TOKEN] [READER-TOKEN]

Prints its versions, then one JSON line a check: {"name", "ok", "why"}.
"""
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import grpc

MODE, ADDRESS, STUBS, CERTS, TOKEN, READER = (sys.argv[1:] + [""] * 6)[:6]
# The packages grpc/health and grpc/reflection would shadow grpcio's own.
grpc.__path__.append(f"{STUBS}/grpc")
sys.path.insert(0, STUBS)

from driftline.v1 import event_pb2, service_pb2 as S, service_pb2_grpc  # noqa: E402
from grpc.health.v1 import health_pb2 as H, health_pb2_grpc  # noqa: E402
from grpc.reflection.v1 import reflection_pb2 as R, reflection_pb2_grpc  # noqa: E402

SERVICE = "driftline.v1.LinkPrediction"
PATIENT_S = 60
# 10,000 pairs of such names are just below 4 MiB, one byte more a name is above.
NAME_NEAR_LIMIT = 205
Code = grpc.StatusCode


def expect(what, value=""):
    if not what:
        raise AssertionError(f"unexpected: {str(value)[:500]}")


def expect_code(run, code, word=""):
    try:
        answer = run()
    except grpc.RpcError as error:
        if error.code() == code and word in error.details():
            return
        raise AssertionError(f"{error.code()} {error.details()!r} instead of {code} with {word!r}")
    raise AssertionError(f"was answered, though {code} was expected: {str(answer)[:200]}")


def pairs(count, name_bytes):
    names = [f"{i:0{name_bytes}}" for i in range(count)]
    return S.ScoreRequest(pairs=[S.Pair(src=name, dst=name) for name in names])


def events(api, src, count):
    begin = api.GetModel(S.GetModelRequest(), timeout=PATIENT_S).trained_until
    return [event_pb2.EdgeEvent(src=src, dst=f"python-peer-{i}", time=begin + i, weight=1)
            for i in range(count)]


def ingest(api, *batches, metadata=None):
    return api.Ingest((S.IngestRequest(events=batch) for batch in batches),
                      timeout=PATIENT_S, metadata=metadata)


def ask(api, **more):
    return api.GetModel(S.GetModelRequest(), timeout=PATIENT_S, **more)


class Plain:
    def unary_get_model(self, api, channel):
        model = ask(api)
        expect(model.architecture == "diffdyg" and len(model.version) == 16, model)

    def unary_score(self, api, channel):
        answer = api.Score(pairs(3, 5), timeout=PATIENT_S)
        expect(len(answer.scores) == 3 and all(0 < s.probability < 1 for s in answer.scores), answer)

    def unary_top_k(self, api, channel):
        answer = api.TopK(S.TopKRequest(node="python-top", k=2, candidates=["n000019", "n000035", "n000060"], only_given=True),
                          timeout=PATIENT_S)
        expect(len(answer.candidates) == 2 and answer.scored == 3 and not answer.known, answer)

    def unary_get_window(self, api, channel):
        ingest(api, events(api, "python-window", 3))
        answer = api.GetWindow(S.GetWindowRequest(node="python-window", limit=2), timeout=PATIENT_S)
        expect(answer.known and answer.events == 3 and len(answer.interactions) == 2, answer)
        expect(answer.interactions[0].peer == "python-peer-2", answer)

    def unary_explain(self, api, channel):
        answer = api.Explain(S.ExplainRequest(src="a", dst="b", per_head=True), timeout=PATIENT_S)
        expect(abs(sum(t.attention for t in answer.tokens) - 1) < 1e-3, answer)

    def server_stream_scores(self, api, channel):
        sent = events(api, "python-scores", 5)
        call = api.SubscribeScores(S.SubscribeScoresRequest(nodes=["python-scores"]), timeout=PATIENT_S)
        call.initial_metadata()  # subscribed from here on
        ingest(api, sent)
        got = [next(call) for _ in sent]
        call.cancel()
        expect([m.score.dst for m in got] == [e.dst for e in sent] and not any(m.dropped for m in got), got)

    def server_stream_predictions(self, api, channel):
        sent = events(api, "python-predictions", 2)
        call = api.SubscribePredictions(S.SubscribePredictionsRequest(nodes=["python-predictions"]),
                                        timeout=PATIENT_S)
        call.initial_metadata()
        ingest(api, sent)
        message = next(call)
        call.cancel()
        expect(message.prediction.node == "python-predictions" and message.prediction.candidates, message)

    def client_stream_ingest(self, api, channel):
        sent = events(api, "python-ingest", 300)
        answer = ingest(api, sent[:100], sent[100:200], sent[200:])
        expect(answer.accepted == 300 and answer.rejected == 0, answer)
        answer = ingest(api, [sent[0], event_pb2.EdgeEvent(dst="no source")])
        expect(answer.accepted == 1 and answer.rejected == 1 and "src" in answer.first_reason, answer)

    def deadline_exceeded(self, api, channel):
        call = api.SubscribeScores(S.SubscribeScoresRequest(nodes=["nobody at all"]), timeout=0.3)
        expect_code(lambda: next(call), Code.DEADLINE_EXCEEDED)
        expect_code(lambda: api.Score(pairs(10000, 100), timeout=0.005), Code.DEADLINE_EXCEEDED)

    def client_cancel(self, api, channel):
        call = api.SubscribeScores(S.SubscribeScoresRequest(), timeout=PATIENT_S)
        call.initial_metadata()
        call.cancel()
        expect_code(lambda: list(call), Code.CANCELLED)
        ask(api)

    def message_near_the_limit(self, api, channel):
        answer = api.Score(pairs(10000, NAME_NEAR_LIMIT), timeout=PATIENT_S)
        expect(len(answer.scores) == 10000, len(answer.scores))

    def message_above_the_limit(self, api, channel):
        expect_code(lambda: api.Score(pairs(10000, NAME_NEAR_LIMIT + 1), timeout=PATIENT_S),
                    Code.RESOURCE_EXHAUSTED, "limit")

    def invalid_argument(self, api, channel):
        expect_code(lambda: api.Score(S.ScoreRequest(), timeout=PATIENT_S), Code.INVALID_ARGUMENT, "pairs")

    def not_found(self, api, channel):
        health = health_pb2_grpc.HealthStub(channel)
        expect_code(lambda: health.Check(H.HealthCheckRequest(service="other"), timeout=PATIENT_S),
                    Code.NOT_FOUND, "no such service")

    def unimplemented(self, api, channel):
        call = channel.unary_unary(f"/{SERVICE}/Nothing")
        expect_code(lambda: call(b"", timeout=PATIENT_S), Code.UNIMPLEMENTED, "Nothing")

    def gzip(self, api, channel):
        with grpc.insecure_channel(ADDRESS, compression=grpc.Compression.Gzip) as zipped:
            api = service_pb2_grpc.LinkPredictionStub(zipped)
            expect(len(api.Score(pairs(1000, 100), timeout=PATIENT_S).scores) == 1000)
            expect_code(lambda: api.Score(pairs(10000, NAME_NEAR_LIMIT + 1), timeout=PATIENT_S),
                        Code.RESOURCE_EXHAUSTED, "limit")

    def health(self, api, channel):
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(H.HealthCheckRequest(service=SERVICE), timeout=PATIENT_S)
        expect(answer.status == H.HealthCheckResponse.SERVING, answer)
        watch = health.Watch(H.HealthCheckRequest(), timeout=PATIENT_S)
        expect(next(watch).status == H.HealthCheckResponse.SERVING)
        watch.cancel()

    def reflection(self, api, channel):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        [answer] = stub.ServerReflectionInfo(iter([R.ServerReflectionRequest(list_services="")]),
                                             timeout=PATIENT_S)
        expect(SERVICE in [s.name for s in answer.list_services_response.service], answer)


def with_token(text):
    return [("authorization", f"Bearer {text}")]


class Tokens:
    def unauthenticated(self, api, channel):
        for metadata in (None, with_token("wrong-wrong-wrong-wrong")):
            expect_code(lambda: ask(api, metadata=metadata), Code.UNAUTHENTICATED)

    def permission_denied(self, api, channel):
        event = event_pb2.EdgeEvent(src="a", dst="b")
        expect_code(lambda: ingest(api, [event], metadata=with_token(READER)), Code.PERMISSION_DENIED)

    def token_is_taken(self, api, channel):
        for text in (READER, TOKEN):
            ask(api, metadata=with_token(text))


def ask_with(ca, own=None, wanted=True):
    """One call with these credentials; ca None: plain text."""
    def check(self, api, channel):
        def read(name):
            return (Path(CERTS) / name).read_bytes()
        own_pair = (read(f"{own}.key"), read(f"{own}.pem")) if own else (None, None)
        channel = (grpc.secure_channel(ADDRESS, grpc.ssl_channel_credentials(read(f"{ca}.pem"), *own_pair))
                   if ca else grpc.insecure_channel(ADDRESS))
        with channel:
            api = service_pb2_grpc.LinkPredictionStub(channel)
            if wanted:
                ask(api)
            else:
                expect_code(lambda: ask(api), Code.UNAVAILABLE)
    return check


class Tls:
    tls = ask_with("ca")
    foreign_authority_is_refused = ask_with("foreign", wanted=False)
    plain_text_is_refused = ask_with(None, wanted=False)


class Mtls:
    mtls = ask_with("ca", "client")
    no_certificate_is_refused = ask_with("ca", wanted=False)
    foreign_certificate_is_refused = ask_with("ca", "stranger", wanted=False)
    expired_certificate_is_refused = ask_with("ca", "expired", wanted=False)


def main():
    print(f"grpcio {version('grpcio')}, protobuf {version('protobuf')}, Python {platform.python_version()}",
          flush=True)
    checks = {"plain": Plain, "tokens": Tokens, "tls": Tls, "mtls": Mtls}[MODE]()
    with grpc.insecure_channel(ADDRESS) as channel:
        api = service_pb2_grpc.LinkPredictionStub(channel)
        for name in [name for name in vars(type(checks)) if not name.startswith("_")]:
            why = ""
            try:
                getattr(checks, name)(api, channel)
            except Exception as error:  # a check that fails must not hide the others
                why = f"{type(error).__name__}: {error}"
            print(json.dumps({"name": name, "ok": not why, "why": why}), flush=True)


main()
