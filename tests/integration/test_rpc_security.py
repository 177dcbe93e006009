"""TLS, client certificates and bearer tokens, with the stock client and ours."""
import socket
import ssl
import subprocess

import grpc
import pytest

from test_rpc_methods import S, Server, code_of, pb


def openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """A CA, a server, a client, an expired client, and a foreign CA with its client."""
    folder = tmp_path_factory.mktemp("certs")
    for ca in ("ca", "foreign"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", "2", "-subj", f"/CN={ca}", "-keyout", f"{ca}.key", "-out", f"{ca}.pem", cwd=folder)
    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, ca, days in (("server", "ca", "2"), ("client", "ca", "2"), ("expired", "ca", "-1"),
                           ("stranger", "foreign", "2")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr", cwd=folder)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                "-CAcreateserial", "-days", days, "-extfile", "san", "-out", f"{name}.pem", cwd=folder)
    return folder


def tls_flags(certs, *more):
    return ("--set", f"rpc.tls_cert={certs}/server.pem", "--set", f"rpc.tls_key={certs}/server.key", *more)


@pytest.fixture(scope="module")
def tls_server(certs):
    server = Server(*tls_flags(certs))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mtls_server(certs):
    server = Server(*tls_flags(certs, "--set", f"rpc.tls_ca={certs}/ca.pem"))
    yield server
    server.stop()


def credentials(certs, client=None, ca="ca"):
    read = lambda name: (certs / name).read_bytes()
    if client is None:
        return grpc.ssl_channel_credentials(read(f"{ca}.pem"))
    return grpc.ssl_channel_credentials(read(f"{ca}.pem"), read(f"{client}.key"), read(f"{client}.pem"))


def ask(address, how, timeout=5, metadata=None):
    channel = grpc.insecure_channel(address) if how is None else grpc.secure_channel(address, how)
    with channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        return stub.GetModel(S.GetModelRequest(), timeout=timeout, metadata=metadata).version


def refused(*arguments, **named):
    with pytest.raises(grpc.RpcError) as caught:
        ask(*arguments, **named)
    return caught.value.code()


def test_tls(certs, tls_server):
    for _ in range(3):  # a session ticket may be used
        assert ask(tls_server.address, credentials(certs)) == "0123456789abcdef"


def test_large_messages_over_tls(certs, tls_server):
    with grpc.secure_channel(tls_server.address, credentials(certs)) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        pairs = [S.Pair(src="s" * 200, dst=f"d{i}") for i in range(10_000)]
        assert len(stub.Score(S.ScoreRequest(pairs=pairs)).scores) == 10_000


def test_wrong_sides_of_tls_are_refused_and_the_service_goes_on(certs, tls_server):
    assert refused(tls_server.address, credentials(certs, ca="foreign"), timeout=2) in (
        grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert refused(tls_server.address, None, timeout=2) in (
        grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    host, port = tls_server.address.split(":")
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 100):
        with socket.create_connection((host, int(port)), 5) as plain:
            plain.settimeout(5)
            plain.sendall(junk)
            plain.shutdown(socket.SHUT_WR)
            try:
                while plain.recv(4096):
                    pass
            except OSError:
                pass
    assert ask(tls_server.address, credentials(certs))


def test_mtls_wants_a_certificate_of_the_right_authority(certs, mtls_server):
    assert ask(mtls_server.address, credentials(certs, "client")) == "0123456789abcdef"
    for client in (None, "stranger", "expired"):
        assert refused(mtls_server.address, credentials(certs, client), timeout=2) in (
            grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), client
    assert ask(mtls_server.address, credentials(certs, "client"))


def test_our_client_over_tls(certs, tls_server, mtls_server, run):
    answer = run("query", "model", "--server", tls_server.address, "--ca", certs / "ca.pem")
    assert "diffdyg" in answer.stdout
    names = [f"{'n' * 200}{i}" for i in range(400)]
    assert run("query", "score", *names, "--server", tls_server.address, "--ca", certs / "ca.pem")
    assert "certificate is refused" in run("query", "model", "--server", tls_server.address,
                                           "--ca", certs / "foreign.pem", code=1).stderr
    assert "certificate is refused" in run("query", "model", "--tls", "--server", tls_server.address, code=1).stderr
    wrong_name = tls_server.address.replace("127.0.0.1", "127.0.0.2")
    assert run("query", "model", "--server", wrong_name, "--ca", certs / "ca.pem", code=1).stderr
    assert run("query", "model", "--server", tls_server.address, code=1).stderr
    assert run("query", "model", "--server", mtls_server.address, "--ca", certs / "ca.pem", "--timeout", "5", code=1).stderr
    answer = run("query", "model", "--server", mtls_server.address, "--ca", certs / "ca.pem",
                 "--cert", certs / "client.pem", "--key", certs / "client.key")
    assert "diffdyg" in answer.stdout


def lines_of(server, word=" warn "):
    server.stop()
    return [line for line in server.errors.splitlines() if word in line]


@pytest.mark.parametrize("client, ca, says", [("expired", "ca", "expired"), ("stranger", "ca", "certificate"),
                                              (None, "ca", "certificate"), ("client", "foreign", "ca")])
def test_a_refused_certificate_is_one_line_in_the_log(certs, client, ca, says):
    server = Server(*tls_flags(certs, "--set", f"rpc.tls_ca={certs}/ca.pem"))
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), 5) as plain:
        context = ssl.create_default_context(cafile=str(certs / f"{ca}.pem"))
        context.set_alpn_protocols(["h2"])
        if client:
            context.load_cert_chain(certs / f"{client}.pem", certs / f"{client}.key")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with context.wrap_socket(plain, server_hostname="localhost") as secure:
                secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                while secure.recv(4096):  # the refusal of TLS 1.3 comes after the handshake
                    pass
                raise ConnectionError("closed")
    assert ask(server.address, credentials(certs, "client"))
    lines = lines_of(server)
    assert len(lines) == 1 and says in lines[0].lower() and "127.0.0.1:" in lines[0], server.errors


def test_plain_text_on_the_tls_port_is_one_line_in_the_log(certs):
    server = Server(*tls_flags(certs))
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), 5) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while plain.recv(4096):
            pass
    assert ask(server.address, credentials(certs))
    lines = lines_of(server)
    assert len(lines) == 1 and "127.0.0.1:" in lines[0], server.errors


def test_start_errors_name_the_file(certs):
    for flags, word in ((tls_flags(certs)[:2] + ("--set", f"rpc.tls_key={certs}/client.key"), "mismatch"),
                        (("--set", "rpc.tls_cert=/nothing.pem", "--set", "rpc.tls_key=/nothing.key"), "/nothing"),
                        (("--set", "rpc.listen=0.0.0.0:0"), "loopback"),
                        (("--set", "rpc.tokens_file=/nothing"), "/nothing")):
        with pytest.raises(RuntimeError) as caught:
            Server(*flags)
        assert word in str(caught.value)


READ, ALL = "r" * 32, "a" * 32


@pytest.fixture(scope="module")
def token_server(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"# who may do what\n{READ}  read   # a dashboard\n\n{ALL} all\n")
    server = Server("--set", f"rpc.tokens_file={tokens}")
    yield server
    server.stop()
    assert READ not in server.errors and ALL not in server.errors


def bearer(token):
    return [("authorization", f"Bearer {token}")]


def test_tokens_and_roles(token_server):
    assert ask(token_server.address, None, metadata=bearer(READ))
    for metadata in (None, bearer("wrong" * 8), [("authorization", f"Basic {READ}")], [("authorization", "Bearer ")]):
        assert refused(token_server.address, None, metadata=metadata) == grpc.StatusCode.UNAUTHENTICATED
    with grpc.insecure_channel(token_server.address) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        for call, request in ((stub.Forget, S.ForgetRequest(node="a")),
                              (stub.RenewReference, S.RenewReferenceRequest()),
                              (stub.Ingest, iter([S.IngestRequest()])),
                              (stub.SubscribeScores, S.SubscribeScoresRequest())):
            code, details = code_of(call, request, metadata=bearer(READ))
            assert code == grpc.StatusCode.PERMISSION_DENIED and READ not in details
        assert stub.Forget(S.ForgetRequest(node="a"), metadata=bearer(ALL)).found
        # Load balancers have no token.
        assert pb.health_grpc.HealthStub(channel).Check(pb.health.HealthCheckRequest()).status == 1


def test_refused_tokens_are_one_line_of_a_connection_and_never_told(tmp_path):
    (tmp_path / "tokens").write_text(f"{READ} read\n")
    server = Server("--set", f"rpc.tokens_file={tmp_path}/tokens")
    with grpc.insecure_channel(server.address) as channel:
        stub = pb.service_grpc.LinkPredictionStub(channel)
        for _ in range(20):
            assert code_of(stub.GetModel, S.GetModelRequest(), metadata=bearer("w" * 32))[0] == \
                grpc.StatusCode.UNAUTHENTICATED
        assert stub.GetModel(S.GetModelRequest(), metadata=bearer(READ))
    lines = lines_of(server)
    assert len(lines) == 1 and "token is not known" in lines[0], server.errors
    assert "w" * 32 not in server.errors and READ not in server.errors


def test_calls_a_second_of_a_client(tmp_path):
    """By token over all its connections; others are not touched, health is free."""
    (tmp_path / "tokens").write_text(f"{READ} read\n{ALL} all\n")
    server = Server("--set", f"rpc.tokens_file={tmp_path}/tokens", "--set", "rpc.calls_rate=2",
                    "--set", "rpc.calls_burst=5")

    def channel(number):
        return grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1),
                                                              ("number", number)])
    answered, refusals = 0, []
    with channel(1) as one, channel(2) as two:
        stubs_ = [pb.service_grpc.LinkPredictionStub(c) for c in (one, two)]
        for i in range(20):
            try:
                stubs_[i % 2].GetModel(S.GetModelRequest(), metadata=bearer(READ))
                answered += 1
            except grpc.RpcError as error:
                refusals.append(error)
        assert 5 <= answered < 20
        for error in refusals:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "rpc.calls_rate" in error.details()
            assert 1 <= int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) <= 500
        assert stubs_[0].GetModel(S.GetModelRequest(), metadata=bearer(ALL))
        health = pb.health_grpc.HealthStub(one)
        assert all(health.Check(pb.health.HealthCheckRequest()).status == 1 for _ in range(20))
    server.stop()


def test_without_tokens_a_client_is_its_address():
    server = Server("--set", "rpc.calls_rate=1", "--set", "rpc.calls_burst=3")
    codes = []
    for _ in range(6):  # a connection each
        try:
            ask(server.address, None)
            codes.append(None)
        except grpc.RpcError as error:
            codes.append(error.code())
    assert codes[:3] == [None] * 3 and grpc.StatusCode.RESOURCE_EXHAUSTED in codes[3:]
    server.stop()


def test_our_client_sends_its_token(token_server, run, tmp_path):
    (tmp_path / "token").write_text(f"{READ} read\n")
    flags = ("--server", token_server.address)
    assert "UNAUTHENTICATED" in run("query", "model", *flags, code=1).stderr
    assert run("query", "model", *flags, "--token-file", tmp_path / "token").stdout
    assert run("query", "model", *flags, env={"DRIFTLINE_TOKEN": READ}).stdout
    denied = run("query", "renew", *flags, env={"DRIFTLINE_TOKEN": READ}, code=1)
    assert "PERMISSION_DENIED" in denied.stderr and READ not in denied.stderr
