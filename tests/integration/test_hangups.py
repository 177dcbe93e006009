"""Clients that hang up while the service answers."""
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PING = b"\0\0\x08\6\0\0\0\0\0" + b"12345678"


def hang_up(address, junk, linger):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 5) as peer:
        if linger is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger))
        for part in junk:
            peer.sendall(part)


def test_clients_that_hang_up_do_not_end_the_service(start, tmp_path):
    """Writing to a connection that the other side has left is an error, no signal."""
    (tmp_path / "feed.csv").write_text("src,dst,time\na,b,1\n")
    service = start("serve", "--set", "source.kind=file", "--source", tmp_path / "feed.csv",
                    "--encoding", "csv", "--store", tmp_path / "s.db")
    for turn in range(300):
        linger = (None, 0)[turn % 2]
        try:
            hang_up(service.rpc, [PREFACE, *[PING] * 30], linger)
            hang_up(service.http, [b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"] * 3, linger)
        except OSError:
            pass  # it hung up first, or is gone, which shows below
    assert service.process.poll() is None, service.log_text()
    assert service.get("/healthz")
    assert service.stop() == 0
