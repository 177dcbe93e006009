"""What the benches on a broker share: the test broker, the service, figures of a process."""
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def broker(action, folder, *flags):
    return subprocess.run([str(ROOT / "tests" / "kafka" / "broker"), action, "--dir", str(folder),
                           *flags], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def make_topics(brokers, topics):
    """topics: name -> partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 3})
    made = admin.create_topics([NewTopic(name, n, 1) for name, n in topics.items()])
    for future in made.values():
        future.result(60)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Service:
    """A running `driftline serve`."""

    def __init__(self, driftline, log, settings, core=None, nice=0):
        self.http, self.rpc = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.log = Path(log)
        flags = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
        pin = ["taskset", "-c", str(core)] if core is not None else []
        with open(log, "wb") as out:
            self.process = subprocess.Popen([*pin, str(driftline), "serve", *flags, "--http",
                                             self.http, "--rpc", self.rpc], stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL)

    def metric(self, name):
        """The sum over its series, or 0 while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if line.split("{")[0].split(" ")[0] == name)

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def wait(self, condition, seconds=600, pause=0.05):
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.log}:\n" + self.log.read_text(errors="replace")[-3000:])
            time.sleep(pause)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
