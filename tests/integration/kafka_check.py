"""driftline check against a real broker: what it has, what it lacks, and when it is away."""


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
