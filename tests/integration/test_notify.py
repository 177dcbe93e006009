"""Alerts by webhook and to Alertmanager, against a stock Python HTTP server. A
stalled feed is the alert: it needs no model, and an ingested event clears it."""
import http.server
import json
import threading
import time

import grpc
import pytest

from rpc_stubs import stubs

pb = stubs()


class Receiver:
    """An HTTP server on a fixed port that remembers what was posted to it and
    answers with the codes it was given, then 200."""

    def __init__(self, port, codes=()):
        self.requests, self.codes = [], list(codes)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = receiver.codes.pop(0) if receiver.codes else 200
                receiver.requests.append((code, self.path, self.headers, json.loads(body)))
                self.send_response(code)
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self):
        """Bodies that were answered with 200."""
        return [body for code, _, _, body in self.requests if code == 200]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receive():
    receivers = []

    def call(port, codes=()):
        receivers.append(Receiver(port, codes))
        return receivers[-1]

    yield call
    for receiver in receivers:
        receiver.stop()


@pytest.fixture
def serve(start, tmp_path):
    feed = tmp_path / "feed.csv"
    feed.write_text("src,dst,time\na,b,1\nb,c,2\n")

    def call(*more, stall="300ms"):
        flags = {"source.kind": "file", "source.path": feed, "source.encoding": "csv",
                 "source.time_unit": "ticks", "store.path": tmp_path / "s.db",
                 "drift.stall": stall}
        return start("serve", *(w for k, v in flags.items() for w in ("--set", f"{k}={v}")), *more)

    return call


def ingest(service, src):
    with grpc.insecure_channel(service.rpc) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        event = pb.event.EdgeEvent(src=src, dst="z", time=9)
        assert stub.Ingest(iter([pb.service.IngestRequest(events=[event])])).accepted == 1


def metric(service, name):
    for line in service.get("/metrics").splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def test_a_webhook_gets_each_alert_once_in_order_whatever_fails(serve, receive, free_port, tmp_path):
    port = free_port()
    (tmp_path / "token").write_text("s3cret\n")
    hook = receive(port, codes=[503, 429])
    service = serve("--set", f"alerts.webhook=http://127.0.0.1:{port}/hook",
                    "--set", f"alerts.token_file={tmp_path / 'token'}")
    service.wait("it is raised", lambda: len(hook.taken()) == 1)
    ingest(service, "x")
    service.wait("it is cleared", lambda: len(hook.taken()) >= 2)
    code, path, headers, body = hook.requests[0]
    assert (code, path, headers["Authorization"]) == (503, "/hook", "Bearer s3cret")
    assert headers["Content-Type"] == "application/json"
    raised, cleared = hook.taken()[:2]
    assert raised["alert"]["kind"] == "feed_stalled" and raised["alert"]["raised"] is True
    assert raised["severity"] == raised["alert"]["severity"] == "critical"
    assert cleared["alert"]["severity"] == "critical"
    assert raised["text"].startswith("driftline: feed_stalled raised: no event for")
    assert cleared["alert"]["kind"] == "feed_stalled" and not cleared["alert"].get("raised")
    # What failed is what came in the end: the same alert, nothing between.
    assert [body["alert"]["number"] for _, _, _, body in hook.requests[:3]] == [
        raised["alert"]["number"]] * 3
    assert metric(service, 'driftline_notifications_total{target="webhook",result="failed"}') == 2
    assert "s3cret" not in service.log_text()


def test_an_alert_of_before_a_restart_is_sent_after_it_and_only_once(serve, receive, free_port):
    port = free_port()
    flags = ("--set", f"alerts.webhook=http://127.0.0.1:{port}/")
    service = serve(*flags)  # nobody listens
    service.wait("it is raised", lambda: "feed_stalled raised" in service.log_text())
    service.kill()
    hook = receive(port)
    service = serve(*flags, stall="0")
    service.wait("it came", lambda: hook.taken())
    assert hook.taken()[0]["alert"]["kind"] == "feed_stalled"
    service.wait("it is written down", lambda: metric(
        service, 'driftline_notifications_total{target="webhook",result="sent"}') == 1)
    assert service.stop() == 0
    service = serve(*flags, stall="0")
    time.sleep(1)
    assert len(hook.requests) == 1


def test_an_alert_that_is_refused_is_given_up_and_the_next_one_goes(serve, receive, free_port):
    port = free_port()
    hook = receive(port, codes=[400])
    service = serve("--set", f"alerts.webhook=http://127.0.0.1:{port}/")
    service.wait("the first is refused", lambda: len(hook.requests) == 1)
    ingest(service, "y")
    service.wait("the second comes", lambda: hook.taken())
    assert not hook.taken()[0]["alert"].get("raised")
    assert "the answer was 400; the alert is given up" in service.log_text()


def test_alertmanager_gets_labels_that_match_and_an_end(serve, receive, free_port):
    port = free_port()
    manager = receive(port)
    service = serve("--set", f"alerts.alertmanager=http://127.0.0.1:{port}/")
    service.wait("it is raised", lambda: len(manager.taken()) == 1)
    ingest(service, "x")
    service.wait("it is cleared", lambda: len(manager.taken()) >= 2)
    assert manager.requests[0][1] == "/api/v2/alerts"
    (raised,), (cleared,) = manager.taken()[:2]
    assert raised["labels"] == cleared["labels"]
    assert raised["labels"]["alertname"] == "driftline_feed_stalled"
    assert raised["annotations"]["summary"].startswith("no event for")
    assert raised["labels"]["severity"] == "critical"
    assert "endsAt" not in raised and "startsAt" in raised
    assert cleared["endsAt"].endswith("Z")


def test_a_standing_alert_is_told_to_alertmanager_again_after_a_restart(serve, receive, free_port):
    port = free_port()
    manager = receive(port)
    flags = ("--set", f"alerts.alertmanager=http://127.0.0.1:{port}")
    service = serve(*flags)
    service.wait("it is raised", lambda: manager.taken())
    service.wait("it is written down", lambda: metric(
        service, 'driftline_notifications_total{target="alertmanager",result="sent"}') == 1)
    assert service.stop() == 0
    before = len(manager.taken())
    service = serve(*flags, stall="0")
    service.wait("it is told again", lambda: len(manager.taken()) > before)
    assert manager.taken()[-1][0]["labels"]["alertname"] == "driftline_feed_stalled"


def test_a_url_that_is_none_is_refused(run):
    out = run("check", "--set", "source.kind=stdin", "--set", "alerts.webhook=ftp://x", code=None)
    assert "alerts.webhook" in out.stdout + out.stderr
    assert "http://" in out.stdout + out.stderr
