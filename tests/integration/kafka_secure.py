"""A broker that asks for TLS and a password: librdkafka's own settings are passed through,
for the source and for the output, and a wrong password is told."""
import subprocess
import sys
import time

import pytest

from conftest import ROOT, OwnBroker
from rpc_stubs import stubs

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()


def make_keys(folder):
    """An authority, and the broker's key and certificate from it, as PEM."""
    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", "/CN=test-ca",
            "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout",
            folder / "broker.key", "-out", folder / "broker.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("x509", "-req", "-days", 2, "-in", folder / "broker.csr", "-CA", folder / "ca.pem",
            "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", folder / "names", "-out",
            folder / "broker.pem")
    (folder / "store.pem").write_text((folder / "broker.key").read_text() +
                                      (folder / "broker.pem").read_text())


@pytest.fixture
def secure(brokers, tmp_path):
    """(address, librdkafka's settings for it)"""
    make_keys(tmp_path)
    port, controller = crash.free_ports(2)
    address = f"127.0.0.1:{port}"
    jaas = ('org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
            'password="inside" user_broker="inside" user_driftline="a secret";')
    settings = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"SASL_SSL://{address},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"SASL_SSL://{address}",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "store.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": tmp_path / "ca.pem",
    }
    broker = OwnBroker.__new__(OwnBroker)
    broker.command = [str(ROOT / "tests" / "kafka" / "broker")]
    broker.folder = tmp_path / "broker"
    broker.do("start", *(w for key, value in settings.items() for w in ("--set", f"{key}={value}")))
    yield address, {"bootstrap.servers": address, "security.protocol": "sasl_ssl",
                    "ssl.ca.location": str(tmp_path / "ca.pem"), "sasl.mechanism": "PLAIN",
                    "sasl.username": "driftline", "sasl.password": "a secret", "log_level": 3}
    broker.do("kill")


def test_tls_and_a_password(secure, run, start, tmp_path):
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic
    address, client = secure
    model = crash.make_feed(tmp_path, 6000, 47)[1]
    admin = AdminClient(client)
    new = [NewTopic(name, 1, 1) for name in ("feed", "scores")]
    for future in admin.create_topics(new).values():
        future.result(60)
    producer = Producer(client)
    for i in range(50):
        producer.produce("feed", pb.event.EdgeEvent(src=f"s{i % 7}", dst=f"d{i % 5}",
                                                    time=1767225600000 + i,
                                                    id=f"{i}").SerializeToString())
    assert producer.flush(30) == 0
    common = ["--brokers", address, "--topics", "feed", "--time-unit", "ms", "--store",
              tmp_path / "s.db", "--model", model, "--set", "predict.scores_topic=scores"]
    for key in "security.protocol", "ssl.ca.location", "sasl.mechanism", "sasl.username":
        common += ["--set", f"kafka.{key}={client[key]}"]
    for password, code, text in (("a secret", 0, "1 source topic with 1 partition"),
                                 ("wrong", 1, "uthentication failed")):
        done = run("check", *common, env={"DRIFTLINE_KAFKA_SASL_PASSWORD": password}, code=code)
        assert text in done.stdout + done.stderr, (done.stdout, done.stderr)
        assert "a secret" not in done.stdout + done.stderr
    service = start("serve", *common, env={"DRIFTLINE_KAFKA_SASL_PASSWORD": "a secret"})
    service.wait("everything is published", lambda: "\ndriftline_scores_total 50\n" in
                 service.get("/metrics") and "\ndriftline_outbox_rows 0\n" in
                 service.get("/metrics"), 60)
    assert service.stop() == 0
    consumer = Consumer({**client, "group.id": "reader", "auto.offset.reset": "earliest",
                         "isolation.level": "read_committed"})
    consumer.subscribe(["scores"])
    found, deadline = [], time.monotonic() + 60
    while len(found) < 50 and time.monotonic() < deadline:
        found += [m for m in consumer.consume(100, 0.5) if not m.error()]
    consumer.close()
    assert [pb.records.Score.FromString(m.value()).id for m in found] == \
        [f"{i}" for i in range(50)]
    service = start("serve", *common, env={"DRIFTLINE_KAFKA_SASL_PASSWORD": "wrong"}, ready=None)
    service.wait("it says so", lambda: "uthentication" in service.log_text(), 60)
    assert "a secret" not in service.log_text()
    service.kill()
