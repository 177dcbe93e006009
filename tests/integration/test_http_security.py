"""HTTP with the security of RPC: TLS, client certificates, tokens and roles, and
the page's session, on the real program."""
import http.client
import json
import signal
import socket
import ssl

import pytest

from test_rpc_security import certs, openssl  # noqa: F401

READ, WATCH, ALL = "r" * 32, "w" * 32, "a" * 32


@pytest.fixture
def serve(start, tmp_path):
    feed = tmp_path / "feed.csv"
    feed.write_text("src,dst,time\na,b,1\nb,c,2\n")

    def call(*settings, ready="/readyz"):
        flags = {"source.kind": "file", "source.path": feed, "source.encoding": "csv",
                 "source.time_unit": "ticks", "store.path": tmp_path / "s.db"}
        sets = [f"{k}={v}" for k, v in flags.items()] + list(settings)
        return start("serve", *(w for one in sets for w in ("--set", one)), ready=ready)

    return call


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"{READ} read\n{WATCH} read,subscribe # dashboards\n{ALL} all # ops\n")
    return path


def ask(service, path, method="GET", body=None, context=None, **headers):
    host, port = service.http.split(":")
    connection = (http.client.HTTPSConnection(host, int(port), timeout=5, context=context) if context
                  else http.client.HTTPConnection(host, int(port), timeout=5))
    if body is not None:
        headers.setdefault("Content_Type", "application/json")
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body),
                           headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        text = b"" if "event-stream" in answer.headers.get("Content-Type", "") else answer.read()
        return answer, text.decode()
    finally:
        connection.close()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("key", ["http.tokens_file", "rpc.tokens_file"])
def test_roles_decide_what_a_token_may_see(serve, tokens, key):
    service = serve(f"{key}={tokens}")
    for path in ("/healthz", "/readyz", "/", "/app.js", "/api/session"):
        assert ask(service, path)[0].status == 200
    closed = ["/metrics", "/api/status", "/api/alerts", "/api/series", "/api/nodes", "/api/events"]
    for path in closed:
        answer, text = ask(service, path)
        assert answer.status == 401 and answer.headers["WWW-Authenticate"] == "Bearer", path
        assert "token is needed" in text
        assert ask(service, path, **bearer("x" * 32))[0].status == 401
        assert ask(service, path, **bearer(WATCH))[0].status == 200, path
    assert ask(service, "/api/events", **bearer(READ))[0].status == 403
    assert ask(service, "/api/drift/renew", "POST", {})[0].status == 401
    assert ask(service, "/api/drift/renew", "POST", {}, **bearer(WATCH))[0].status == 403
    # There is no drift monitor without a model: let in, and told so.
    assert ask(service, "/api/drift/renew", "POST", {}, **bearer(ALL))[0].status == 503


def test_a_session_lasts_until_it_is_ended_and_its_token_goes(serve, tokens):
    service = serve(f"http.tokens_file={tokens}")
    answer, text = ask(service, "/api/session")
    assert json.loads(text) == {"token_needed": True, "name": "", "roles": []}
    answer, text = ask(service, "/api/login", "POST", {"token": "x" * 32})
    assert answer.status == 401 and "Set-Cookie" not in answer.headers
    assert ask(service, "/api/login", "POST", {"token": WATCH}, Origin="http://evil.example")[0].status == 403
    assert ask(service, "/api/login", "POST", {"token": WATCH}, Content_Type="text/plain")[0].status == 415

    def login():
        answer, text = ask(service, "/api/login", "POST", {"token": WATCH})
        assert json.loads(text) == {"token_needed": True, "name": "dashboards",
                                    "roles": ["read", "subscribe"]}
        parts = answer.headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} < set(parts) and WATCH not in parts[0]
        return parts[0]

    cookie, other = login(), login()
    assert cookie != other
    assert ask(service, "/api/alerts", Cookie=f"theme=dark; {cookie}")[0].status == 200
    assert ask(service, "/api/events", Cookie=cookie)[0].status == 200
    assert ask(service, "/api/drift/renew", "POST", {}, Cookie=cookie)[0].status == 403
    broken = cookie[:-1] + ("0" if cookie[-1] != "0" else "1")
    assert ask(service, "/api/alerts", Cookie=broken)[0].status == 401
    answer, _ = ask(service, "/api/logout", "POST", {}, Cookie=cookie)
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert ask(service, "/api/alerts", Cookie=cookie)[0].status == 401
    assert ask(service, "/api/alerts", Cookie=other)[0].status == 200
    # A token that is taken out of the file takes its sessions along.
    tokens.write_text(f"{ALL} all\n")
    service.process.send_signal(signal.SIGHUP)
    service.wait("the session is over", lambda: ask(service, "/api/alerts", Cookie=other)[0].status == 401)
    assert WATCH not in service.log_text() and ALL not in service.log_text()


def trusting(certs, client=None):
    context = ssl.create_default_context(cafile=certs / "ca.pem")
    if client:
        context.load_cert_chain(certs / f"{client}.pem", certs / f"{client}.key")
    return context


def serve_tls(serve, certs, *more):
    service = serve(f"http.tls_cert={certs}/server.pem", f"http.tls_key={certs}/server.key", *more,
                    ready=None)
    service.wait("it listens", lambda: "dashboard on https://" in service.log_text())
    return service


def test_tls_is_spoken_from_version_1_2_on(serve, certs, tokens):
    service = serve_tls(serve, certs, f"http.tokens_file={tokens}")
    assert ask(service, "/", context=trusting(certs))[0].status == 200
    answer, _ = ask(service, "/api/login", "POST", {"token": ALL}, context=trusting(certs))
    assert answer.headers["Set-Cookie"].endswith("; Secure")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(service, "/", context=ssl.create_default_context())
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(service, "/")
    old = trusting(certs)
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):
        ask(service, "/", context=old)
    assert service.stop() == 0


def test_a_client_certificate_is_asked_for(serve, certs):
    service = serve_tls(serve, certs, f"http.tls_ca={certs}/ca.pem")
    answer, text = ask(service, "/", context=trusting(certs, "client"))
    assert answer.status == 200 and "driftline" in text
    for client in (None, "stranger", "expired"):
        try:
            answer, text = ask(service, "/metrics", context=trusting(certs, client))
            assert answer.status == 403 and "client certificate" in text, client
        except OSError:
            pass  # refused in the handshake: as good


def test_certificates_are_read_again(serve, certs, tmp_path):
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_bytes((certs / name).read_bytes())
    (tmp_path / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    service = serve_tls(serve, tmp_path)

    def serial():
        with socket.create_connection(tuple(service.http.split(":")), timeout=5) as plain:
            with trusting(tmp_path).wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                return secure.getpeercert()["serialNumber"]

    before = serial()
    (tmp_path / "server.key").write_text("broken")
    service.process.send_signal(signal.SIGHUP)
    service.wait("it says so", lambda: "HTTP keeps what it had" in service.log_text())
    assert serial() == before
    (tmp_path / "server.key").write_bytes((certs / "client.key").read_bytes())
    (tmp_path / "server.pem").write_bytes((certs / "client.pem").read_bytes())
    service.process.send_signal(signal.SIGHUP)
    service.wait("the new one is shown", lambda: serial() != before)


@pytest.mark.parametrize("settings,word", [
    (("http.listen=0.0.0.0:0",), "http.tls_cert"),
    (("http.tls_cert=/nothing.pem",), "is needed beside http.tls_cert"),
    (("http.tls_ca=/nothing.pem",), "need http.tls_cert"),
    (("http.tls_cert=/nothing.pem", "http.tls_key=/nothing.key"), "/nothing.pem"),
    (("http.tokens_file=/nothing",), "http.tokens_file: /nothing"),
])
def test_what_is_wrong_is_named(run, tmp_path, settings, word):
    (tmp_path / "feed.csv").write_text("src,dst,time\na,b,1\n")
    base = ["source.kind=file", f"source.path={tmp_path}/feed.csv", "source.encoding=csv",
            "source.time_unit=ticks", f"store.path={tmp_path}/s.db", "rpc.listen=off"]
    flags = [w for one in [*base, *settings] for w in ("--set", one)]
    ended = run("serve", *flags, "--exit-at-end", code=None, timeout=30)
    assert ended.returncode in (1, 2) and word in ended.stderr


def test_a_key_of_another_certificate_is_named(run, tmp_path, certs):
    (tmp_path / "feed.csv").write_text("src,dst,time\na,b,1\n")
    sets = ["source.kind=file", f"source.path={tmp_path}/feed.csv", "source.encoding=csv",
            "source.time_unit=ticks", f"store.path={tmp_path}/s.db", "rpc.listen=off",
            f"http.tls_cert={certs}/server.pem", f"http.tls_key={certs}/client.key"]
    ended = run("serve", *(w for one in sets for w in ("--set", one)), "--exit-at-end", code=1, timeout=30)
    assert "is not the key of" in ended.stderr
