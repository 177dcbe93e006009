"""driftline check against a real broker: what it has, what it lacks, and when it is away."""
import time


def flags(brokers, topics, tmp_path):
    return ["check", "--brokers", brokers, "--topics", topics, "--time-unit", "ms",
            "--set", f"store.path={tmp_path / 's.db'}"]


def test_counts_brokers_and_partitions(run, brokers, topic, tmp_path):
    name = topic("events", partitions=3)
    out = run(*flags(brokers, name, tmp_path)).stdout
    assert f"{brokers}: 1 broker, 1 source topic with 3 partitions" in out


def test_names_a_missing_topic_and_does_not_make_it(run, brokers, topic, tmp_path):
    name = topic("events")
    for _ in range(2):  # the first request must not have made it
        errors = run(*flags(brokers, f"{name},{name}-not", tmp_path), code=1).stderr
        assert f"there is no topic {name}-not" in errors


def test_says_when_no_broker_answers_or_a_setting_is_wrong(run, free_port, tmp_path):
    away = f"127.0.0.1:{free_port()}"
    errors = run(*flags(away, "events", tmp_path), code=1).stderr
    assert f"{away}: no broker answered" in errors and len(errors.splitlines()) == 1
    errors = run(*flags(away, "events", tmp_path), "--set", "kafka.secrity.protocol=ssl",
                 code=1).stderr
    assert "secrity.protocol" in errors


def test_says_that_the_group_has_a_member_of_the_same_identity(run, brokers, topic, tmp_path):
    from confluent_kafka import Consumer
    name, group = topic("events"), f"twins-{time.time_ns()}"

    def check(*more):
        return run(*flags(brokers, name, tmp_path), "--set", f"kafka.group.id={group}",
                   *more).stdout

    assert "member" not in check()
    for instance in None, "a":
        member = Consumer({"bootstrap.servers": brokers, "group.id": group,
                           "session.timeout.ms": 6000,
                           **({"group.instance.id": instance} if instance else {})})
        member.subscribe([name])
        deadline = time.monotonic() + 60
        while not member.assignment():
            assert time.monotonic() < deadline
            member.poll(0.2)
        same = ("--set", f"kafka.group.instance.id={instance}") if instance else ()
        other = () if instance else ("--set", "kafka.group.instance.id=b")
        assert f"group {group} has 1 member now, 1 of them with" in check(*same)
        assert "member" not in check(*other)
        member.close()
