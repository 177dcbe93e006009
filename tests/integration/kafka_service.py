"""The service on a real broker: live quality against `evaluate`, broken
messages, and a kill in the middle."""
import csv
import gzip
import json
import re
import signal
import time

import numpy
import pytest

OUTPUTS = ("scores", "predictions", "alerts", "dead_letters")


@pytest.fixture
def outputs(topic):
    """Topics of one service: the names, and the flags that set them."""
    names = {kind: topic(kind.replace("_", "-")) for kind in OUTPUTS}
    flags = [w for kind, name in names.items() for w in ("--set", f"predict.{kind}_topic={name}")]
    return names, flags


def service_flags(brokers, source, store, outputs, *more):
    return ["serve", "--brokers", brokers, "--topics", source, "--store", str(store),
            "--set", f"kafka.group.id={source}", *outputs[1], *map(str, more)]


def drained(service, events):
    """Everything taken in, scored and published."""
    metrics = dict(line.rsplit(" ", 1) for line in service.get("/metrics").splitlines()
                   if line and not line.startswith("#"))
    return (float(metrics["driftline_records_total"]) >= events and
            float(metrics["driftline_outbox_rows"]) == 0)


def scores_of(protos, messages):
    records = protos("driftline.v1.records_pb2")
    scores = []
    for message in messages:
        score = records.Score()
        score.ParseFromString(message.value())
        scores.append(score)
    return scores


def average_precision(labelled):
    """Ties are one threshold, as in evaluate."""
    labelled = sorted(labelled, key=lambda x: -x[0])
    positives = total = sum_precision = at = 0
    while at < len(labelled):
        end = at
        while end < len(labelled) and labelled[end][0] == labelled[at][0]:
            end += 1
        tied = sum(label for _, label in labelled[at:end])
        positives += tied
        total = end
        sum_precision += tied * positives / total
        at = end
    return sum_precision / positives


# ---- US Legis: the service against evaluate -------------------------------------------


def split(path, folder):
    """The feed up to q85 and the rest, as two files."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.reader(file))
    header, rows = rows[0], rows[1:]
    q85 = numpy.quantile([float(r[2]) for r in rows], 0.85)
    past, rest = folder / "past.csv", folder / "rest.csv"
    for name, part in ((past, [r for r in rows if float(r[2]) <= q85]),
                       (rest, [r for r in rows if float(r[2]) > q85])):
        with open(name, "w", newline="") as file:
            csv.writer(file).writerows([header] + part)
    return past, rest, sum(float(r[2]) > q85 for r in rows)


def test_live_quality_on_us_legis_equals_evaluate(brokers, topic, outputs, consume, start, run,
                                                  data, protos, tmp_path):
    feed = data("uslegis.csv.gz")
    model, store, source = tmp_path / "m.safetensors", tmp_path / "s.db", topic("legis")
    past, rest, count = split(feed, tmp_path)
    run("train", feed, "--ties", "stream", "--out", model, "--epochs", 2, "--positives", 4000,
        "--seed", 1, "--time-unit", "ticks")
    run("ingest", past, "--store", store, "--time-unit", "ticks", "--destinations", feed)
    offline = json.loads(run("evaluate", feed, "--model", model, "--ties", "stream", "--negatives",
                             "random", "--draws", 1, "--seed", 7, "--json").stdout)
    service = start(*service_flags(brokers, source, store, outputs, "--model", model,
                                   "--time-unit", "ticks", "--set", "predict.quality_seed=7",
                                   "--set", "predict.candidates_max=20"))
    run("replay", rest, "--to", f"{brokers}/{source}", "--rate", 1e9)
    service.wait("all is published", lambda: drained(service, count), 300)
    live = json.loads(service.get("/api/quality"))
    assert service.stop() == 0

    scores = scores_of(protos, consume(outputs[0]["scores"], seconds=8))
    predictions = consume(outputs[0]["predictions"], seconds=8)
    assert len(scores) == count
    assert len(predictions) == count
    assert len({s.seq for s in scores}) == count
    assert [s.position.offset for s in scores] == list(range(count))
    pooled = average_precision([(s.probability, 1) for s in scores] +
                               [(s.quality.negative_probability, 0) for s in scores])
    print(f"live AP {pooled:.6f}, evaluate {offline['ap']['pooled']:.6f}, "
          f"the service's own figure {live}")
    assert abs(pooled - offline["ap"]["pooled"]) < 0.001


# ---- broken messages --------------------------------------------------------------------


def test_broken_messages_become_dead_letters_and_the_stream_goes_on(
        brokers, topic, outputs, produce, consume, start, protos, tmp_path):
    events = protos("driftline.v1.event_pb2")
    source = topic("broken")
    now = int(time.time() * 1000)

    def event(**fields):
        return events.EdgeEvent(**{"src": "a", "dst": "b", "time": now, **fields})

    good = event().SerializeToString()
    broken = {
        "truncated": good[:-3],
        "missing field": events.EdgeEvent(src="a", time=now).SerializeToString(),
        "nan": event(features=[1.0, float("nan")]).SerializeToString(),
        "1 MB string": event(src="x" * 1000000).SerializeToString(),
        "wrong unit": event(time=now // 1000).SerializeToString(),
    }
    produce(source, [good, *broken.values(), event(src="123456789012345678901").SerializeToString()])
    service = start(*service_flags(brokers, source, tmp_path / "s.db", outputs, "--time-unit",
                                   "ms"))
    service.wait("all is published", lambda: drained(service, 7))
    window = json.loads(service.get("/api/node?name=123456789012345678901"))["window"]
    assert [event["peer"] for event in window] == ["b"]
    assert service.stop() == 0
    letters = consume(outputs[0]["dead_letters"], count=len(broken))
    records = protos("driftline.v1.records_pb2")
    assert len(letters) == len(broken)
    for (kind, payload), message in zip(broken.items(), letters):
        letter = records.DeadLetter()
        letter.ParseFromString(message.value())
        print(f"{kind}: {letter.reason} (field {letter.field})")
        assert letter.payload == payload
        assert letter.reason
        assert letter.position.topic == source
    fields = []
    for message in letters:
        letter = records.DeadLetter()
        letter.ParseFromString(message.value())
        fields.append(letter.field)
    assert fields == ["time", "dst", "features", "src", "time"]


def test_json_of_wrong_types_is_told_by_field(brokers, topic, outputs, produce, consume, start,
                                              protos, tmp_path):
    source = topic("json")
    now = int(time.time() * 1000)
    produce(source, [
        json.dumps({"user": {"id": "a"}, "item": 7, "at": now}),
        json.dumps({"user": {"id": ["a"]}, "item": 7, "at": now}),
        json.dumps({"user": {"id": "a"}, "item": 7, "at": "yesterday"}),
        json.dumps({"user": {"id": "a"}, "at": now}),
        "{\"user\": {\"id\": 123456789012345678901}, \"item\": \"b\", \"at\": %d}" % (now + 1),
        "{\"user\"",
    ])
    service = start(*service_flags(brokers, source, tmp_path / "s.db", outputs, "--time-unit",
                                   "ms", "--encoding", "json", "--map", "src=/user/id", "--map",
                                   "dst=/item", "--map", "time=/at", "--set",
                                   "predict.encoding=json"))
    service.wait("all is published", lambda: drained(service, 6))
    answer = service.get("/api/node?name=123456789012345678901")
    assert "\"b\"" in answer
    assert service.stop() == 0
    letters = [json.loads(m.value()) for m in consume(outputs[0]["dead_letters"], count=4)]
    print("\n".join(f"{x['field']}: {x['reason']}" for x in letters))
    assert [x["field"] for x in letters] == ["src", "time", "dst", "message"]


# ---- a kill in the middle ------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(run, tmp_path_factory):
    """A simulated feed and a small model of it: (csv, model)."""
    folder = tmp_path_factory.mktemp("simulated")
    feed, model = folder / "feed.csv", folder / "m.safetensors"
    run("simulate", "--out", feed, "--events", 12000, "--nodes", 200, "--seed", 5)
    run("train", feed, "--time-unit", "ms", "--out", model, "--epochs", 1, "--positives", 2000)
    return feed, model


def test_a_killed_service_goes_on_where_it_was(brokers, topic, outputs, consume, start, run,
                                               simulated, protos, tmp_path):
    feed, model = simulated
    source, count = topic("kill"), 6000
    flags = service_flags(brokers, source, tmp_path / "s.db", outputs, "--model", model,
                          "--time-unit", "ms", "--set", "predict.candidates_max=30", "--set",
                          "kafka.session.timeout.ms=6000")
    run("replay", feed, "--to", f"{brokers}/{source}", "--time-unit", "ms", "--limit", count)
    kills = 0
    while True:
        service = start(*flags)
        if kills < 4:
            before = taken(service)
            service.wait("some events were taken in",
                         lambda: taken(service) >= before + 300 or drained_all(service, count), 60)
            service.kill()
            kills += 1
            continue
        service.wait("all is published", lambda: drained_all(service, count), 180)
        state = service.get("/api/status")
        assert service.stop() == 0
        break
    scores = scores_of(protos, consume(outputs[0]["scores"], seconds=8))
    by_seq = {}
    for score in scores:
        again = by_seq.setdefault(score.seq, score)
        assert (again.position.offset, again.probability, again.src, again.dst) == (
            score.position.offset, score.probability, score.src, score.dst)
    assert sorted(by_seq) == list(range(count)), state
    print(f"{kills} kills, {len(scores) - count} repeated of {count}")

    # The same feed without interruption gives the same scores.
    calm_source = source
    calm_outputs = {kind: f"{name}-calm" for kind, name in outputs[0].items()}
    calm_flags = [w for kind, name in calm_outputs.items()
                  for w in ("--set", f"predict.{kind}_topic={name}")]
    service = start(*service_flags(brokers, calm_source, tmp_path / "calm.db",
                                   (calm_outputs, calm_flags), "--model", model, "--time-unit",
                                   "ms", "--set", "predict.candidates_max=30", "--set",
                                   f"kafka.group.id={source}-calm"))
    service.wait("all is published", lambda: drained_all(service, count), 180)
    assert service.stop() == 0
    for score in scores_of(protos, consume(calm_outputs["scores"], count=count)):
        assert score.probability == by_seq[score.seq].probability


def metric(service, name):
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", service.get("/metrics"), re.M)
    return float(found.group(1)) if found else 0.0


def taken(service):
    return json.loads(service.get("/api/status"))["feed"]["events"]


def drained_all(service, count):
    return taken(service) >= count and metric(service, "driftline_outbox_rows") == 0


# ---- own data, as the README says it ----------------------------------------------------------


def test_stopping_in_the_middle_finishes_what_was_taken_in(brokers, topic, outputs, consume, start,
                                                           run, simulated, protos, tmp_path):
    feed, model = simulated
    source, count = topic("stop"), 3000
    flags = service_flags(brokers, source, tmp_path / "s.db", outputs, "--model", model,
                          "--time-unit", "ms", "--set", "predict.candidates_max=30")
    run("replay", feed, "--to", f"{brokers}/{source}", "--time-unit", "ms", "--limit", count)
    for _ in range(2):
        service = start(*flags)
        before = taken(service)
        service.wait("some events", lambda: taken(service) >= min(before + 200, count))
        assert service.stop(signal.SIGTERM) == 0
    service = start(*flags)
    service.wait("all is published", lambda: drained_all(service, count), 120)
    assert service.stop() == 0
    scores = scores_of(protos, consume(outputs[0]["scores"], count=count))
    assert sorted(s.seq for s in scores) == list(range(count))


def test_a_stop_right_after_the_start_is_clean(brokers, topic, outputs, start, tmp_path):
    """Between joining the group and the first assignment librdkafka 2.0.2 must
    not be torn down."""
    source = topic("short")
    for k in range(8):
        service = start(*service_flags(brokers, source, tmp_path / f"{k}.db", outputs,
                                       "--time-unit", "ms"), ready=None)
        service.wait("it serves", lambda: "dashboard on" in service.log_text())
        time.sleep(0.04 * k)
        assert service.stop() == 0, service.log_text()[-2000:]
