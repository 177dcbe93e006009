"""A full disk is waited for: nothing is lost, and the service says what it waits for."""
import os
import shutil
import subprocess
import urllib.error

import pytest

ROOM = "60m"  # more than the store needs with its WAL at its largest
BALLAST = "52M"


@pytest.fixture
def small_disk(driftline, tmp_path):
    """A wrapper program that mounts a small tmpfs over `folder`, with a ballast in it, and becomes
    driftline. Only that process sees it; others reach it through /proc."""
    folder = tmp_path / "disk"
    folder.mkdir()
    unshare = [shutil.which("unshare") or "unshare", "--mount"]
    if os.getuid():
        unshare.append("--map-root-user")
    script = (f"mount -t tmpfs -o size={ROOM} none {folder} && "
              f"head -c {BALLAST} /dev/zero > {folder}/ballast && exec \"$@\"")
    if subprocess.run([*unshare, "sh", "-c", script, "sh", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace of its own is allowed here")
    wrapper = tmp_path / "driftline-on-a-small-disk"
    wrapper.write_text("#!/bin/sh\nexec " + " ".join(unshare) + f" sh -c '{script}' sh {driftline} "
                       "\"$@\"\n")
    wrapper.chmod(0o755)
    return folder, wrapper


def test_a_full_disk_is_waited_for(small_disk, start, run, driftline, tmp_path):
    folder, wrapper = small_disk
    feed, events = tmp_path / "feed.csv", 200000
    run("simulate", "--out", feed, "--events", events, "--nodes", 2000)
    service = start("serve", "--set", "source.kind=file", "--source", feed, "--encoding", "csv",
                    "--time-unit", "ms", "--store", folder / "s.db", ready=None, program=wrapper)

    def metric(name):
        for line in service.get("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        return None

    service.wait("the disk is full", lambda: metric("driftline_store_full") == 1, 60)
    taken = metric("driftline_events_total")
    assert 0 < taken < events
    with pytest.raises(urllib.error.HTTPError) as refused:
        service.get("/readyz")
    assert refused.value.code == 503 and "free some space" in refused.value.read().decode()
    assert service.get("/healthz").strip() == "ok"
    service.wait("it stays so", lambda: True, 1)
    assert metric("driftline_events_total") == taken
    os.remove(f"/proc/{service.process.pid}/root{folder}/ballast")
    service.wait("everything is taken in", lambda: metric("driftline_events_total") == events, 60)
    assert metric("driftline_store_full") == 0
    service.get("/readyz")
    service.wait("it says so", lambda: "there is room again" in service.log_text())
    assert service.log_text().count("free some space on its file system; waiting") == 1
    for name in ("s.db", "s.db-wal"):
        shutil.copy(f"/proc/{service.process.pid}/root{folder}/{name}", tmp_path / name)
    assert service.stop() == 0
    run("check", "--store", tmp_path / "s.db")
