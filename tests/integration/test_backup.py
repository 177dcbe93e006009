"""driftline backup, while a service writes to the store."""
import json


def test_a_backup_while_serving_is_whole_and_can_be_gone_on_from(start, run, tmp_path):
    feed, store, copy = (tmp_path / name for name in ("feed.csv", "s.db", "copy.db"))
    events = 400000
    run("simulate", "--out", feed, "--events", events, "--nodes", 3000)
    flags = ("--set", "source.kind=file", "--source", feed, "--encoding", "csv", "--time-unit", "ms",
             "--set", "store.synchronous=normal")
    service = start("serve", *flags, "--store", store)

    def taken():
        return next(float(line.split()[1]) for line in service.get("/metrics").splitlines()
                    if line.startswith("driftline_events_total "))

    service.wait("it takes events in", lambda: taken() > 20000)
    made = json.loads(run("backup", "--store", store, "--to", copy, "--json").stdout)
    assert 20000 < made["events"] < events
    assert "exists already" in run("backup", "--store", store, "--to", copy, code=1).stderr
    service.wait("everything is taken in", lambda: taken() == events, 60)
    assert service.stop() == 0
    run("ingest", feed, "--store", copy, "--time-unit", "ms")
    run("check", "--store", copy)


def test_a_backup_of_nothing_says_so(run, tmp_path):
    assert "no such file" in run("backup", "--store", tmp_path / "none.db", "--to",
                                 tmp_path / "copy.db", code=1).stderr
