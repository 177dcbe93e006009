"""Without transactions nothing is lost, and a repeat is the same record again."""
import sys
import time

from conftest import ROOT
from rpc_stubs import stubs

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()
KILLS = 6


def test_kills_repeat_records_at_most_and_lose_none(brokers, topic, tmp_path):
    path, model = crash.make_feed(tmp_path, 6000, 17)
    messages, _ = crash.messages_of(path, pb, 3000)
    source = topic("at-least-once")
    run = crash.Run(tmp_path, brokers, source, model, "crashed",
                    ("--set", "predict.delivery=at_least_once",
                     "--set", "kafka.group.instance.id=one"))
    crash.publish(brokers, source, messages, 0)
    for _ in range(KILLS):
        life = crash.Life(run)
        name = 'driftline_published_total{topic="%s"}' % run.outputs["scores"]
        deadline = time.monotonic() + 60
        while not (life.metrics() or {}).get(name):  # in the middle of publishing
            life.look()
            if (life.metrics() or {}).get("driftline_outbox_rows") == 0 and run.lives > 1:
                break  # all was published before
            assert time.monotonic() < deadline, life.log.read_text()[-2000:]
            time.sleep(0.01)
        life.kill()
    life = crash.Life(run)
    life.wait_drained(brokers, source)
    life.stop()
    assert "output is delivered at least once" in life.log.read_text()
    seen = {}
    records = crash.read_topic(brokers, run.outputs["scores"])
    for _, key, value, _ in records:
        offset = pb.records.Score.FromString(value).position.offset
        assert seen.setdefault(offset, (key, value)) == (key, value), offset
    missing = set(range(len(messages))) - set(seen)
    for kind in ("dead_letters", "late"):
        for _, _, _, headers in crash.read_topic(brokers, run.outputs[kind]):
            missing.discard(int(dict(headers)["source-offset"]))
    assert not missing, sorted(missing)[:10]
    print(f"{len(records) - len(seen)} of {len(records)} scores were repeats")
