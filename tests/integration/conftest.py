"""Shared by the integration tests: the program, a broker, ports, a data folder.

Tests named test_*.py need the built program and nothing else; tests named
kafka_*.py need a broker: `make test-kafka` starts one and names it in
DRIFTLINE_TEST_BROKERS.
"""
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("DRIFTLINE_BUILD", "build")
READY_SECONDS = 60
STOP_SECONDS = 60


def pytest_report_header():
    return f"program: {BUILD / 'driftline'}; broker: {os.environ.get('DRIFTLINE_TEST_BROKERS')}"


@pytest.fixture(scope="session")
def driftline():
    """Path of the built program."""
    path = BUILD / "driftline"
    if not path.exists():
        pytest.fail(f"{path} is not built; run make")
    return str(path)


@pytest.fixture(scope="session")
def run(driftline):
    """Runs a command of the program to its end: run("check", "--config", path)."""

    def call(*arguments, code=0, timeout=300, stdin=None, env=None):
        done = subprocess.run([driftline, *map(str, arguments)], capture_output=True, text=True,
                              timeout=timeout, input=stdin, env={**os.environ, **(env or {})})
        assert code is None or done.returncode == code, (
            f"{' '.join(map(str, arguments))} ended with {done.returncode}:\n"
            f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done

    return call


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def free_port():
    """A function that gives a loopback port nobody listens on."""
    return _free_port


class Service:
    """A running `driftline serve` (or another command that stays)."""

    def __init__(self, process, log, rpc, http):
        self.process, self.log, self.rpc, self.http = process, log, rpc, http

    def get(self, path, timeout=5):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=timeout) as answer:
            return answer.read().decode()

    def log_text(self):
        return self.log.read_text(errors="replace")

    def wait(self, what, condition, seconds=READY_SECONDS):
        """Waits until condition() is true; fails with the service's log otherwise."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                value = condition()
                if value:
                    return value
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        state = (f"ended with {self.process.returncode}" if self.process.poll() is not None
                 else f"after {seconds} s")
        pytest.fail(f"{what}: not so {state}; its log:\n{self.log_text()[-4000:]}")

    def stop(self, sig=signal.SIGTERM):
        """Ends it and returns its exit code (negative: killed by a signal)."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"did not end {STOP_SECONDS} s after signal {sig}; its log:\n"
                        f"{self.log_text()[-4000:]}")

    def kill(self):
        return self.stop(signal.SIGKILL)


@pytest.fixture
def start(driftline, tmp_path):
    """Starts a command that stays: start("serve", "--config", path) -> Service,
    listening on free loopback ports. What still runs at the end is killed."""
    started = []

    def call(*arguments, ready="/readyz", env=None, program=driftline):
        rpc, http = (f"127.0.0.1:{_free_port()}" for _ in range(2))
        log = tmp_path / f"service-{len(started)}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [program, *map(str, arguments), "--rpc", rpc, "--http", http],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})})
        service = Service(process, log, rpc, http)
        started.append(service)
        if ready:
            service.wait("it is ready", lambda: service.get(ready) is not None)
        return service

    yield call
    for service in started:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


@pytest.fixture(scope="session")
def protos(tmp_path_factory):
    """Stock Python modules generated from the project's .proto files:
    protos("driftline.v1.rpc_pb2_grpc")."""
    from grpc_tools import protoc
    out = tmp_path_factory.mktemp("protos")
    files = sorted(str(p.relative_to(ROOT / "proto")) for p in (ROOT / "proto").rglob("*.proto"))
    assert protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"--python_out={out}",
                        f"--grpc_python_out={out}", *files]) == 0
    sys.path.insert(0, str(out))
    # grpcio's own packages are named grpc as well: generated modules of that
    # package join it instead of hiding behind it.
    if (out / "grpc").is_dir():
        import grpc
        grpc.__path__.append(str(out / "grpc"))
    return importlib.import_module


@pytest.fixture(scope="session")
def data():
    """Path of a benchmark file: data("uslegis.csv.gz"); skips where there is none."""

    def find(name):
        folder = os.environ.get("DRIFTLINE_DATA")
        if not folder:
            pytest.skip(f"needs {name}: DRIFTLINE_DATA names no folder")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"needs {name}, which is not in DRIFTLINE_DATA")
        return path

    return find


# ---- Kafka ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def brokers():
    address = os.environ.get("DRIFTLINE_TEST_BROKERS")
    if not address:
        pytest.skip("needs a broker: make test-kafka starts one")
    return address


@pytest.fixture
def topic(brokers):
    """Creates a topic of its own: topic("events", partitions=1) -> its name."""
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": brokers})

    def create(name, partitions=1):
        full = f"{name}-{uuid.uuid4().hex[:8]}"
        for future in admin.create_topics([NewTopic(full, partitions, 1)]).values():
            future.result(30)
        return full

    return create


@pytest.fixture
def produce(brokers):
    """produce(topic, values, partition=0, headers=None): all are acknowledged on return."""
    from confluent_kafka import Producer

    def call(name, values, partition=0, headers=None):
        producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5,
                             "message.max.bytes": 2000000})
        errors = []
        for value in values:
            while True:
                try:
                    producer.produce(name, value, partition=partition, headers=headers,
                                     on_delivery=lambda e, _: e and errors.append(e))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush(60)
        assert not errors, errors

    return call


@pytest.fixture
def consume(brokers):
    """All messages of a topic from its beginning until `count` came or `seconds`
    passed; only what a read_committed reader sees unless told otherwise."""
    from confluent_kafka import Consumer, KafkaError

    def call(name, count=None, seconds=30, isolation="read_committed"):
        consumer = Consumer({"bootstrap.servers": brokers, "group.id": uuid.uuid4().hex,
                             "auto.offset.reset": "earliest", "enable.auto.commit": False,
                             "isolation.level": isolation, "fetch.wait.max.ms": 50})
        consumer.subscribe([name])
        messages, deadline = [], time.monotonic() + seconds
        try:
            while time.monotonic() < deadline and (count is None or len(messages) < count):
                for message in consumer.consume(500, 0.2):
                    if message.error():
                        assert message.error().code() in (
                            KafkaError._PARTITION_EOF,
                            KafkaError.UNKNOWN_TOPIC_OR_PART), message.error()
                    else:
                        messages.append(message)
        finally:
            consumer.close()
        return messages

    return call


class OwnBroker:
    """A broker that one test may stop, kill and restart."""

    def __init__(self, folder):
        self.command = [str(ROOT / "tests" / "kafka" / "broker")]
        self.folder = folder
        self.address = self.do("start")

    def do(self, action, *flags):
        return subprocess.run([*self.command, action, "--dir", str(self.folder), *flags],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.fixture
def own_broker(brokers, tmp_path):
    """do("stop" | "kill" | "start" | "restart", ...) on a broker of the test's own."""
    broker = OwnBroker(tmp_path / "broker")
    yield broker
    broker.do("kill")
    shutil.rmtree(tmp_path / "broker", ignore_errors=True)
