"""Each language's client program once in each mode; each of its checks is a test."""
import json
import os
import re
import subprocess

import pytest
from conftest import CLIENTS, READER, ROOT, TOKEN, note

SERVICE = "driftline.v1.LinkPrediction"
CHECKS = {
    "plain": ["unary_get_model", "unary_score", "unary_top_k", "unary_get_window", "unary_explain",
              "server_stream_scores", "server_stream_predictions", "client_stream_ingest",
              "deadline_exceeded", "client_cancel", "message_near_the_limit", "message_above_the_limit",
              "invalid_argument", "not_found", "unimplemented", "gzip", "health", "reflection"],
    "tokens": ["unauthenticated", "permission_denied", "token_is_taken"],
    "tls": ["tls", "foreign_authority_is_refused", "plain_text_is_refused"],
    "mtls": ["mtls", "no_certificate_is_refused", "foreign_certificate_is_refused",
             "expired_certificate_is_refused"],
}


def command(language, mode, address, certs):
    here = ROOT / "tests" / "clients"
    if language == "go":
        return [CLIENTS / "go" / "client", "-mode", mode, "-address", address, "-certs", certs,
                "-token", TOKEN, "-reader", READER]
    rest = [certs, TOKEN, READER]
    if language == "node":
        return ["node", here / "node" / "client.js", mode, address, ROOT / "proto", *rest]
    return [CLIENTS / "python" / "bin" / "python", here / "python" / "client.py", mode, address,
            CLIENTS / "stubs", *rest]


@pytest.fixture(scope="module")
def results(services, certs):
    """results(language, mode) -> {check: why it failed, or ""}; run when first asked for."""
    done = {}

    def call(language, mode):
        if (language, mode) not in done:
            ran = subprocess.run(
                list(map(str, command(language, mode, services(mode).rpc, certs))),
                capture_output=True, text=True, timeout=600,
                env={**os.environ, "NODE_PATH": str(CLIENTS / "node" / "node_modules")})
            versions, *lines = ran.stdout.splitlines() or [ran.stderr]
            if mode == "plain":
                note(f"{language}: {versions}")
            found = {}
            for line in lines:
                one = json.loads(line)
                found[one["name"]] = one["why"] if not one["ok"] else ""
            done[language, mode] = found, f"exit {ran.returncode}: {ran.stderr[-2000:]}"
        return done[language, mode]

    return call


@pytest.mark.parametrize("check", [f"{mode}: {name}" for mode, names in CHECKS.items() for name in names])
@pytest.mark.parametrize("language", ["python", "node", "go"])
def test_stock_client(results, services, language, check):
    mode, name = check.split(": ")
    found, ending = results(language, mode)
    assert name in found, ending
    assert found[name] == ""
    services(mode).healthy()


def test_nothing_is_left_of_the_clients(results, services, eventually):
    """Cancelled and overdue calls ended on the server's side too."""
    for language in ("python", "node", "go"):
        results(language, "plain")
    service = services("plain")
    assert eventually(lambda: service.metric("driftline_rpc_connections") == 0)
    assert service.metric("driftline_rpc_streams") == 0
    requests = [line for line in service.get("/metrics").splitlines()
                if line.startswith("driftline_rpc_requests_total")]
    for code in ("OK", "CANCELLED", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "NOT_FOUND"):
        assert any(f'code="{code}"' in line for line in requests), requests


def test_no_secret_and_no_crash_in_the_logs(results, services):
    results("python", "tokens")
    for mode in CHECKS:
        log = services(mode).log_text()
        assert TOKEN not in log and READER not in log


# ---- grpcurl -------------------------------------------------------------------


@pytest.fixture
def grpcurl(services, certs):
    def call(*words, mode="plain", stdin=None, flags=None):
        how = {"plain": ["-plaintext"], "tokens": ["-plaintext"], "tls": ["-cacert", certs / "ca.pem"],
               "mtls": ["-cacert", certs / "ca.pem", "-cert", certs / "client.pem",
                        "-key", certs / "client.key"]}[mode]
        before = [w for w in words if w.startswith("-")] if flags is None else flags
        rest = [w for w in words if not w.startswith("-")] if flags is None else words
        return subprocess.run(
            [str(w) for w in [CLIENTS / "bin" / "grpcurl", *how, *before, services(mode).rpc, *rest]],
            capture_output=True, text=True, timeout=120, input=stdin)

    return call


def test_grpcurl_lists_and_describes(grpcurl):
    names = grpcurl("list").stdout.split()
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= set(names)
    assert f"{SERVICE}.SubscribeScores" in grpcurl("list", SERVICE).stdout
    text = grpcurl("describe", f"{SERVICE}.TopK").stdout
    assert re.search(r"rpc TopK \( \.driftline\.v1\.TopKRequest \)", text), text
    assert "only_given" in grpcurl("describe", "driftline.v1.TopKRequest").stdout


def test_grpcurl_unary(grpcurl):
    def ask(method, text):
        done = grpcurl(f"{SERVICE}/{method}", flags=["-d", text])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert ask("GetModel", "{}")["architecture"] == "diffdyg"
    answer = ask("Score", '{"pairs": [{"src": "a", "dst": "b"}]}')
    assert 0 < answer["scores"][0]["probability"] < 1
    assert len(ask("TopK", '{"node": "n9", "k": 2, "candidates": ["n000019", "n000035", "n000060"]}')["candidates"]) == 2
    assert ask("GetWindow", '{"node": "a"}')["windowMax"] == 64
    done = grpcurl("grpc.health.v1.Health/Check")
    assert json.loads(done.stdout)["status"] == "SERVING"


def test_grpcurl_streams(grpcurl, services):
    end = int(json.loads(grpcurl(f"{SERVICE}/GetModel").stdout)["trainedUntil"])
    batches = "".join(json.dumps({"events": [{"src": "grpcurl", "dst": f"d{i}", "time": end + i}]})
                      for i in range(3))
    done = grpcurl(f"{SERVICE}/Ingest", flags=["-d", "@"], stdin=batches)
    assert done.returncode == 0 and json.loads(done.stdout)["accepted"] == "3", done.stderr
    done = grpcurl(f"{SERVICE}/SubscribeScores", flags=["-max-time", "1", "-d", '{"nodes": ["nobody"]}'])
    assert done.returncode != 0 and "DeadlineExceeded" in done.stderr


def test_grpcurl_error_codes(grpcurl):
    assert "InvalidArgument" in grpcurl(f"{SERVICE}/Score").stderr
    done = grpcurl("grpc.health.v1.Health/Check", flags=["-d", '{"service": "other"}'])
    assert "NotFound" in done.stderr
    assert "Unauthenticated" in grpcurl(f"{SERVICE}/GetModel", mode="tokens").stderr
    done = grpcurl(f"{SERVICE}/GetModel", mode="tokens", flags=["-H", f"authorization: Bearer {READER}"])
    # Reflection, which grpcurl asks first, needs the header as well.
    assert done.returncode == 0 and "diffdyg" in done.stdout, done.stderr


@pytest.mark.parametrize("mode", ["tls", "mtls"])
def test_grpcurl_tls(grpcurl, mode):
    assert "diffdyg" in grpcurl(f"{SERVICE}/GetModel", mode=mode).stdout


# ---- load ----------------------------------------------------------------------


def test_h2load(services, tmp_path):
    """A short load: every answer is gRPC's OK, and the memory stays."""
    service = services("plain")
    (tmp_path / "body").write_bytes(b"\0" * 5)
    ok = f'driftline_rpc_requests_total{{method="GetModel",code="OK"}}'

    def load(count):
        before = service.metric(ok)
        done = subprocess.run(
            ["h2load", "-n", str(count), "-c", "16", "-m", "20", "-d", str(tmp_path / "body"),
             "-H", "content-type: application/grpc", "-H", "te: trailers",
             f"http://{service.rpc}/{SERVICE}/GetModel"], capture_output=True, text=True, timeout=300)
        assert f"{count} succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout, done.stdout
        assert service.metric(ok) - before == count, service.get("/metrics")
        return done.stdout

    load(5000)
    memory = service.memory_bytes()
    text = load(30000)
    grown = service.memory_bytes() - memory
    rate = re.search(r"finished in .*", text)[0]
    latency = re.search(r"time for request: .*", text)[0]
    note(f"h2load, 16 connections of 20 streams: {rate}; {latency}; memory grew by {grown >> 10} KiB")
    assert grown < 8 << 20
