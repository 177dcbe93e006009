"""What the service tells systemd, heard on a socket of our own; and the unit file."""
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "driftline.service"
EXPOSURE_MAX = 1.5  # of 10; what docs/OPERATIONS.md states is below


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    name = str(tmp_path / "notify") if request.param == "path" else f"\0driftline-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(name)
        heard.settimeout(30)
        yield heard, name.replace("\0", "@")


@pytest.fixture
def serve(start, tmp_path):
    (tmp_path / "feed.csv").write_text("src,dst,time\na,b,1\n")
    sets = ["source.kind=file", f"source.path={tmp_path}/feed.csv", "source.encoding=csv",
            "source.time_unit=ticks", f"store.path={tmp_path}/s.db"]
    return lambda env: start("serve", *(w for one in sets for w in ("--set", one)), ready=None, env=env)


def test_systemd_hears_of_start_life_reload_and_end(serve, manager):
    listener, name = manager
    service = serve({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "400000"})
    heard = lambda: listener.recv(4096).decode()
    assert heard() == "READY=1"
    assert service.get("/readyz").strip() == "ready"
    assert [heard(), heard()] == ["WATCHDOG=1"] * 2
    service.process.send_signal(signal.SIGHUP)

    def next_word():
        while (word := heard()) == "WATCHDOG=1":
            pass
        return word

    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*", next_word())
    assert next_word() == "READY=1"
    service.process.send_signal(signal.SIGTERM)
    assert next_word() == "STOPPING=1"
    assert service.stop() == 0


def test_a_watchdog_of_another_process_is_not_fed(serve, manager):
    listener, name = manager
    service = serve({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    assert listener.recv(4096) == b"READY=1"
    assert service.stop() == 0
    assert listener.recv(4096) == b"STOPPING=1"


@pytest.mark.parametrize("name", ["/nowhere/at/all", "relative", "/" + "x" * 200])
def test_a_socket_that_is_not_there_is_no_reason_to_end(serve, name):
    service = serve({"NOTIFY_SOCKET": name})
    service.wait("it is ready", lambda: service.get("/readyz"))
    assert "systemd could not be told READY=1" in service.log_text()
    assert service.stop() == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze (Debian: systemd)")
def test_the_unit_is_right_and_closed(tmp_path):
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", UNIT], capture_output=True, text=True)
    # The program is not installed here; nothing else may be wrong.
    wrong = [line for line in checked.stderr.splitlines() if "/usr/local/bin/driftline" not in line
             and "driftline.service" in line]
    assert wrong == []
    told = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", UNIT],
                          capture_output=True, text=True).stdout
    score = float(re.search(r"Overall exposure level for driftline.service: ([0-9.]+)", told).group(1))
    print(f"systemd-analyze security: {score}")
    assert score <= EXPOSURE_MAX, told
