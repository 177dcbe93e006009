"""driftline query and driftline subscribe against the service in memory."""
import json
import subprocess
import time

import grpc
import pytest

from test_rpc_methods import S, Server, event, pb


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def query(run, server):
    def call(*words, code=0):
        return run("query", *words, "--server", server.address, code=code)

    return call


def test_score_as_table_and_as_json(query):
    text = query("score", "ab", "c", "nobody", "x").stdout
    assert text.splitlines()[1].split()[:4] == ["ab", "c", "0.250000", "3.000"]
    assert "source unknown" in text.splitlines()[2]
    answer = json.loads(query("score", "ab", "c", "--json").stdout)
    assert answer["scores"][0]["probability"] == 0.25
    assert answer["model_version"] == "0123456789abcdef"


def test_top_k(query):
    lines = query("topk", "abc", "--k", "3").stdout.splitlines()
    assert [line.split()[1] for line in lines[3:6]] == ["node0", "node1", "node2"]
    answer = json.loads(query("topk", "abc", "--candidates", "x,y", "--only", "--json").stdout)
    assert [c["node"] for c in answer["candidates"]] == ["x", "y"]


def test_window_explain_drift_model_health(query):
    assert "3 events (2 as source, 1 as destination)" in query("window", "abc").stdout
    assert "never seen" in query("window", "nobody").stdout
    assert "1970-01-01T00:00:01" in query("window", "abc").stdout
    text = query("explain", "ab", "c", "--per-head").stdout
    assert "the node's own summary" in text and "0.1000 0.2000 | 0.3000 0.4000" in text
    assert "statistic 0.02" in query("drift").stdout
    assert json.loads(query("drift", "--json").stdout)["quality"]["ap"] == 0.9
    assert "diffdyg 0123456789abcdef (differential attention" in query("model").stdout
    assert query("health").stdout == "serving\n"
    assert "1000 rows" in query("renew").stdout


def test_forget_wants_a_yes(query):
    assert "--yes" in query("forget", "abc", code=2).stderr
    assert "3 events removed" in query("forget", "abc", "--yes").stdout


def test_names_cannot_write_to_the_terminal(query):
    text = query("score", "a\x1b[31mb", "c\u009bd").stdout
    assert "\x1b" not in text and "\u009b" not in text
    assert "a\\x1b[31mb" in text


@pytest.mark.parametrize("words, reason", [
    (("score", "busy", "x"), "RESOURCE_EXHAUSTED"),
    (("score", "x" * 300, "x"), "INVALID_ARGUMENT"),
    (("score", "slow", "x", "--timeout", "0.2"), "DEADLINE_EXCEEDED"),
])
def test_refusals_are_one_line_and_exit_code_1(query, words, reason):
    done = query(*words, code=1)
    assert reason in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("words", [(), ("scroe", "a", "b"), ("score", "a"), ("topk",), ("topk", "a", "--k", "0"),
                                   ("topk", "a", "--kk", "1"), ("score", "a", "b", "--time", "soon")])
def test_what_is_not_understood_is_exit_code_2(query, words):
    assert query(*words, code=2).stderr.startswith("driftline")


def test_server_that_is_not_there(run, free_port):
    done = run("query", "model", "--server", f"127.0.0.1:{free_port()}", code=1)
    assert "cannot connect" in done.stderr
    assert "HOST:PORT" in run("query", "model", "--server", "nonsense", code=1).stderr


def test_compressed_requests(query):
    names = [f"node-number-{i}" for i in range(200)]
    assert len(query("score", *names, "--gzip").stdout.splitlines()) == 103


def test_subscribe(driftline, server):
    with grpc.insecure_channel(server.address) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        readers = [
            subprocess.Popen([driftline, "subscribe", *words, "--server", server.address],
                             stdout=subprocess.PIPE, text=True)
            for words in (("scores", "--count", "3", "--json"), ("predictions", "--count", "1"),
                          ("alerts", "--count", "1"), ("scores", "--nodes", "zz", "--count", "1"))]
        time.sleep(0.5)
        stub.Ingest(iter([S.IngestRequest(events=[
            event(src="aa", dst="b"), event(src="cc", dst="d", type="alert"), event(src="e", dst="zz")])]))
        outputs = [reader.communicate(timeout=20)[0] for reader in readers]
        assert [reader.returncode for reader in readers] == [0] * 4
    assert [json.loads(line)["score"]["src"] for line in outputs[0].splitlines()] == ["aa", "cc", "e"]
    assert "aa -> b 0.9000, aa 0.4000" in outputs[1]
    assert "raised" in outputs[2] and "gaps doubled" in outputs[2]
    assert "e -> zz" in outputs[3]


def test_subscription_that_breaks_off_is_exit_code_1(driftline):
    server = Server()
    reader = subprocess.Popen([driftline, "subscribe", "scores", "--server", server.address],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    server.process.terminate()
    _, errors = reader.communicate(timeout=20)
    assert reader.returncode == 1
    assert "shutting down" in errors
    server.stop()


def test_drift_renew_asks_the_service(run, server):
    assert "1000 rows" in run("drift", "--renew", "--server", server.address).stdout
