"""The README's "Your own data in five minutes", word for word, on a feed with
other field names, string ids and millisecond times. Only the broker's address
and the listening ports are replaced."""
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.request

import pytest

from conftest import BUILD, ROOT


def readme_commands():
    """The indented blocks of the section, by their first command."""
    text = (ROOT / "README.md").read_text()
    section = text.split("## Your own data in five minutes")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return {line.split()[1] if "driftline" in line else "build": re.sub(r"\s+", " ", line)
            for line in joined.splitlines()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "build").symlink_to(BUILD)
    return tmp_path


def write_payments(path):
    rng = random.Random(4)
    at = 1_764_540_000_000
    with open(path, "w") as file:
        file.write("payer,payee,at,amount\n")
        for _ in range(6000):
            at += rng.randrange(1, 5000)
            payer = rng.randrange(120)
            payee = (payer * 7 + rng.randrange(3)) % 120 if rng.random() < 0.8 else rng.randrange(120)
            file.write(f"cust-{payer},shop-{payee},{at},{rng.randrange(1, 900)}\n")


def test_train_and_evaluate_as_the_readme_says(folder):
    commands = readme_commands()
    write_payments(folder / "payments.csv")
    for name in ("train", "evaluate"):
        done = subprocess.run(commands[name], shell=True, cwd=folder, capture_output=True, text=True,
                              timeout=300)
        assert done.returncode == 0, f"{commands[name]}\n{done.stderr[-2000:]}"
    assert (folder / "payments.safetensors").exists()
    assert "AP" in done.stdout


def test_serve_as_the_readme_says(folder, brokers, topic, produce, consume, free_port):
    commands = readme_commands()
    write_payments(folder / "payments.csv")
    trained = subprocess.run(commands["train"], shell=True, cwd=folder, capture_output=True,
                             text=True, timeout=300)
    assert trained.returncode == 0, trained.stderr[-2000:]
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic("clicks", 1, 1)]).values():
        try:
            future.result(30)
        except Exception as error:  # left by an earlier run on the same broker
            assert "exists" in str(error)
    now = int(time.time() * 1000)
    rng = random.Random(5)
    produce("clicks", [json.dumps({"user": {"id": f"u{rng.randrange(40)}"},
                                   "item": f"i{rng.randrange(25)}", "at": now - 500 * 20 + 20 * i})
                       for i in range(500)])
    http = f"127.0.0.1:{free_port()}"
    command = commands["serve"].replace("localhost:9092", brokers)
    assert command != commands["serve"]
    log = open(folder / "log", "w")
    process = subprocess.Popen("exec " + command, shell=True, cwd=folder, stderr=log, stdout=log,
                               env={**os.environ, "DRIFTLINE_HTTP_LISTEN": http,
                                    "DRIFTLINE_RPC_LISTEN": f"127.0.0.1:{free_port()}"})
    try:
        scores = consume("driftline.scores", count=500, seconds=60)
        assert len(scores) >= 500, (folder / "log").read_text()[-2000:]
        assert len(consume("driftline.predictions", count=500, seconds=30)) >= 500
        page = urllib.request.urlopen(f"http://{http}/", timeout=10).read().decode()
        assert "driftline" in page
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "log").read_text()[-2000:]
