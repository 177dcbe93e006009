"""A trained model, certificates, and a running `driftline serve` in each mode."""
import importlib.util
import json
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "build" / "clients"

spec = importlib.util.spec_from_file_location("integration", ROOT / "tests" / "integration" / "conftest.py")
integration = importlib.util.module_from_spec(spec)
spec.loader.exec_module(integration)
driftline, run = integration.driftline, integration.run

READER, TOKEN = "r" * 32, "a" * 32
EVENTS = 4000


notes = []


def note(text):
    """A line for the report at the end: a version, a figure."""
    notes.append(text)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("versions and figures")
    for line in pytest_report_header() + notes:
        terminalreporter.line(line)


def output(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).splitlines()[0]


def module_version(tool):
    """grpcurl does not know its own version when it was installed by go."""
    text = subprocess.run(["go", "version", "-m", str(CLIENTS / "bin" / tool)], capture_output=True,
                          text=True, check=True).stdout
    return next(line.split()[2] for line in text.splitlines() if line.split()[0] == "mod")


def pytest_report_header():
    return [f"program: {integration.BUILD / 'driftline'}",
            f"grpcurl {module_version('grpcurl')}",
            output(CLIENTS / "bin" / "protoc-gen-go", "--version"),
            output(CLIENTS / "bin" / "protoc-gen-go-grpc", "--version"),
            output("h2load", "--version"), output("openssl", "version")]


def openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="session")
def certs(tmp_path_factory):
    """ca, server, client, expired of one authority; foreign and stranger of another."""
    folder = tmp_path_factory.mktemp("certs")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for ca in ("ca", "foreign"):
        openssl("req", "-x509", *new_key, "-days", "2", "-subj", f"/CN={ca}",
                "-keyout", f"{ca}.key", "-out", f"{ca}.pem", cwd=folder)
    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, ca, days in (("server", "ca", "2"), ("client", "ca", "2"), ("expired", "ca", "-1"),
                           ("stranger", "foreign", "2")):
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                "-out", f"{name}.csr", cwd=folder)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                "-CAcreateserial", "-days", days, "-extfile", "san", "-out", f"{name}.pem", cwd=folder)
    return folder


@pytest.fixture(scope="session")
def trained(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    feed, model = folder / "feed.csv", folder / "model.safetensors"
    run("simulate", "--out", feed, "--events", EVENTS, "--nodes", 100)
    run("train", feed, "--time-unit", "ms", "--out", model, "--epochs", 1, "--positives", 2000)
    return feed, model


class Running(integration.Service):
    """Adds what the tests look at from outside: memory, files, metrics."""

    def get(self, path, timeout=5):
        """With the token that HTTP wants where RPC wants one."""
        request = urllib.request.Request(f"http://{self.http}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read().decode()

    def memory_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def files(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def metric(self, name):
        """The sum of all series whose line begins so."""
        return sum(float(line.split()[-1]) for line in self.get("/metrics").splitlines()
                   if line.startswith(name))

    def healthy(self):
        assert self.process.poll() is None, self.log_text()[-3000:]
        self.get("/healthz", timeout=20)


@pytest.fixture(scope="session")
def serve(driftline, trained, tmp_path_factory):
    """serve("--set", ...) -> Running, which has taken the feed in."""
    feed, model = trained
    started = []

    def call(*flags):
        folder = tmp_path_factory.mktemp("serve")
        rpc, http = (f"127.0.0.1:{integration._free_port()}" for _ in range(2))
        with open(folder / "log", "wb") as out:
            process = subprocess.Popen(
                [driftline, "serve", "--set", "source.kind=file", "--source", feed, "--encoding", "csv",
                 "--time-unit", "ms", "--store", folder / "s.db", "--model", model,
                 "--set", "predict.candidates_max=10", "--rpc", rpc, "--http", http, *map(str, flags)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        service = Running(process, folder / "log", rpc, http)
        started.append(service)
        service.wait("it has taken the feed in", lambda: json.loads(
            service.get("/api/status"))["feed"]["events"] >= EVENTS, 180)
        return service

    yield call
    for service in started:
        code = service.stop()
        assert code == 0, service.log_text()[-3000:]


@pytest.fixture(scope="session")
def services(serve, certs, tmp_path_factory):
    """services("plain" | "tokens" | "tls" | "mtls"), each started once."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"{READER} read\n{TOKEN} all\n")
    tls = ("--set", f"rpc.tls_cert={certs}/server.pem", "--set", f"rpc.tls_key={certs}/server.key")
    flags = {"plain": (), "tokens": ("--set", f"rpc.tokens_file={tokens}"), "tls": tls,
             "mtls": (*tls, "--set", f"rpc.tls_ca={certs}/ca.pem")}
    running = {}

    def call(mode):
        if mode not in running:
            running[mode] = serve(*flags[mode])
        return running[mode]

    return call


@pytest.fixture
def eventually():
    def call(condition, seconds=20):
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    return call
