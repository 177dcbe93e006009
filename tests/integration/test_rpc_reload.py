"""SIGHUP while the service runs: certificates and tokens for those who come from
now on, and what does not check leaves the old in place."""
import shutil
import signal
import socket
import ssl

import grpc
import pytest

from rpc_stubs import stubs
from test_rpc_security import ALL, READ, bearer, certs, openssl  # noqa: F401 (a fixture)

pb = stubs()
S = pb.service


@pytest.fixture
def service(start, certs, tmp_path):  # noqa: F811
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=second",
            "-keyout", "second.key", "-out", "second.csr", cwd=certs)
    openssl("x509", "-req", "-in", "second.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-extfile",
            "san", "-out", "second.pem", cwd=certs)
    use(certs, "server", tmp_path)
    (tmp_path / "tokens").write_text(f"{READ} read\n")
    (tmp_path / "feed.csv").write_text("src,dst,time\na,b,1\n")
    return start("serve", "--set", "source.kind=file", "--source", tmp_path / "feed.csv", "--encoding", "csv",
                 "--store", tmp_path / "s.db", "--set", f"rpc.tls_cert={tmp_path}/now.pem", "--set",
                 f"rpc.tls_key={tmp_path}/now.key", "--set", f"rpc.tokens_file={tmp_path}/tokens")


def use(certs, name, folder):  # noqa: F811
    for ending in ("pem", "key"):
        shutil.copy(certs / f"{name}.{ending}", folder / f"now.{ending}")


def shown(service, certs):  # noqa: F811
    """The common name of the certificate that a new connection is shown."""
    host, port = service.rpc.split(":")
    context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), 5) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            return dict(entry[0] for entry in secure.getpeercert()["subject"])["commonName"]


def reload(service, what, condition):
    service.process.send_signal(signal.SIGHUP)
    service.wait(what, condition)


def ask(stub, token):
    """None if the token is known, else the status."""
    try:
        stub.GetDrift(S.GetDriftRequest(), metadata=bearer(token), timeout=10)
    except grpc.RpcError as error:
        return error.code() if error.code() == grpc.StatusCode.UNAUTHENTICATED else None


def test_new_connections_see_what_is_new_and_old_ones_go_on(service, certs, tmp_path):  # noqa: F811
    trust = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes())
    with grpc.secure_channel(service.rpc, trust) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        watch = pb.health_grpc.HealthStub(channel).Watch(pb.health.HealthCheckRequest())
        next(watch)  # a stream that must live on
        assert shown(service, certs) == "server"
        assert ask(stub, READ) is None and ask(stub, ALL) == grpc.StatusCode.UNAUTHENTICATED

        use(certs, "second", tmp_path)
        (tmp_path / "tokens").write_text(f"{ALL} all\n")
        reload(service, "the new certificate is shown", lambda: shown(service, certs) == "second")
        service.wait("the new token is known", lambda: ask(stub, ALL) is None)
        assert ask(stub, READ) == grpc.StatusCode.UNAUTHENTICATED  # also on the old connection
        assert watch.is_active()

        # Broken files: one line each, and all stays as it was.
        (tmp_path / "now.pem").write_text("no certificate\n")
        (tmp_path / "tokens").write_text("short all\n")
        reload(service, "the log says so", lambda: "tokens are kept as they were" in service.log_text())
        assert shown(service, certs) == "second" and ask(stub, ALL) is None and watch.is_active()
        log = service.log_text()
        assert log.count("certificates are kept as they were") == log.count("tokens are kept as they were") == 1
        assert "now.pem" in log and "tokens:1" in log and "short" not in log.split("tokens:1")[1].split("\n")[0]
        watch.cancel()
    assert service.stop() == 0
    assert READ not in service.log_text() and ALL not in service.log_text()
