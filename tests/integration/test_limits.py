"""Limits of the running service that a client can reach."""
import socket
import time


def test_http_listens_again_after_its_connection_limit(start, run, tmp_path):
    feed = tmp_path / "feed.csv"
    run("simulate", "--out", feed, "--events", 200)
    service = start("serve", "--set", "source.kind=file", "--source", feed, "--encoding", "csv",
                    "--time-unit", "ms", "--store", tmp_path / "s.db", "--set",
                    "http.connections_max=20")
    host, port = service.http.split(":")
    held = []
    for _ in range(40):
        try:
            held.append(socket.create_connection((host, int(port)), timeout=2))
        except OSError:
            break
    assert len(held) >= 20
    time.sleep(0.5)
    for connection in held:
        connection.close()
    service.wait("it answers again", lambda: service.get("/healthz").strip() == "ok", 10)
    assert service.stop() == 0
