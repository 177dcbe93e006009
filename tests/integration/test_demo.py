"""The demo as a newcomer runs it, and drift on files: a shift is found once and
cleared by a renewal; the training distribution raises nothing."""
import json
import re
import signal
import subprocess
import time
import urllib.request

import pytest



class Demo:
    def __init__(self, driftline, log, *flags):
        self.log = log
        self.process = subprocess.Popen(
            [driftline, "demo", "--http", "127.0.0.1:0", "--rpc", "127.0.0.1:0", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
        line = self.process.stdout.readline()
        assert line, log.read_text()[-2000:]
        self.http = json.loads(line)["dashboard"]

    def get(self, path):
        return urllib.request.urlopen(self.http + path, timeout=10).read().decode()

    def metric(self, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("metrics"), re.M)
        return float(found.group(1)) if found else 0.0

    def wait(self, what, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
            time.sleep(0.2)


def test_demo_finds_its_shift_once_and_a_renewal_clears_it(driftline, tmp_path):
    demo = Demo(driftline, tmp_path / "log", "--rate", 120, "--shift-after", 1500, "--json")
    try:
        assert demo.get("readyz").strip() == "ready"
        assert "<html" in demo.get("").lower()
        demo.wait("the shift has come", lambda: demo.metric("driftline_events_total") > 1500, 90)
        assert demo.metric("driftline_alerts_total") == 0, "an alert before the shift"
        demo.wait("the alert is raised", lambda: demo.metric("driftline_drift_raised") == 1, 60)
        assert demo.metric("driftline_alerts_total") == 1
        request = urllib.request.Request(demo.http + "api/drift/renew", method="POST",
                                         data=b'{"reason": "new habits, as planted"}',
                                         headers={"Content-Type": "application/json"})
        assert urllib.request.urlopen(request, timeout=10).status == 200
        demo.wait("the alert is cleared", lambda: demo.metric("driftline_drift_raised") == 0, 10)
        act, cleared, raised = json.loads(demo.get("api/alerts"))["alerts"]
        assert act["kind"] == "reference_renewed" and act["severity"] == "info"
        assert re.fullmatch(r"reference renewed by http 127\.0\.0\.1 at 20\d\d-\S+Z: new habits, as planted",
                            act["reason"])
        assert cleared["raised"] is False and raised["raised"] is True
        assert cleared["severity"] == raised["severity"] in ("warning", "critical")
        for moved in raised["features"]:
            for histogram in (moved["before_histogram"], moved["now_histogram"]):
                assert len(histogram) == 32 and abs(sum(histogram) - 1) < 0.01
        assert demo.metric("driftline_alerts_total") == 1, "an act is no alert"
    finally:
        demo.process.send_signal(signal.SIGTERM)
        out, _ = demo.process.communicate(timeout=60)
    assert demo.process.returncode == 0
    summary = json.loads(out.strip().splitlines()[-1])
    print(summary)
    assert summary["alerts_before_shift"] == 0
    assert summary["alerts_raised"] == 1
    assert summary["alerts_cleared"] == 1
    assert summary["delay_events"] < 1000
    assert summary["scores"] == summary["events"] == summary["predictions"]


@pytest.fixture(scope="module")
def trained(run, tmp_path_factory):
    """A simulated feed, a model of it, and the feed as it goes on."""
    folder = tmp_path_factory.mktemp("drift")
    whole, past, rest = folder / "whole.csv", folder / "past.csv", folder / "rest.csv"
    model = folder / "m.safetensors"
    run("simulate", "--out", whole, "--events", 24000, "--seed", 11)
    lines = whole.read_text().splitlines(keepends=True)
    past.write_text("".join(lines[:16001]))
    rest.write_text("".join([lines[0], *lines[16001:]]))
    run("train", past, "--time-unit", "ms", "--out", model, "--epochs", 2, "--positives", 3000)
    return past, rest, model


def alerts_of(service):
    return [line for line in service.log_text().splitlines() if "temporal_shift raised" in line]


@pytest.mark.parametrize("part", ["the past again into a fresh store", "what follows"])
def test_the_training_distribution_raises_nothing(start, run, trained, tmp_path, part):
    past, rest, model = trained
    store = tmp_path / "s.db"
    feed = past
    if part == "what follows":
        run("ingest", past, "--store", store, "--time-unit", "ms")
        feed = rest
    events = len(feed.read_text().splitlines()) - 1
    service = start("serve", "--set", "source.kind=file", "--source", feed, "--encoding", "csv",
                    "--time-unit", "ms", "--store", store, "--model", model, "--set",
                    "predict.candidates_max=10")
    service.wait("all events were taken in", lambda: json.loads(
        service.get("/api/status"))["feed"]["events"] >= events + (16000 if feed == rest else 0),
        180)
    assert service.stop() == 0
    assert alerts_of(service) == []


def test_a_run_length_may_be_given_as_time(start, run, trained, tmp_path):
    """The simulated feed has 250 events a day."""
    past, _, model = trained
    flags = ["--set", "source.kind=file", "--source", past, "--encoding", "csv", "--time-unit", "ms",
             "--model", model, "--set", "predict.for=none", "--set", "drift.window=100"]
    service = start("serve", *flags, "--store", tmp_path / "s.db", "--set", "drift.run_time=400d")
    asked = json.loads(service.get("/api/drift"))["run_length_asked"]
    assert 75_000 < asked < 125_000
    service.kill()
    ended = run("serve", *flags, "--store", tmp_path / "t.db", "--set", "drift.run_time=1h",
                "--rpc", "off", "--http", "off", code=1)
    assert "drift.run_length" in ended.stderr
