"""The program's front door: help, versions, unknown words, configuration errors."""
import json


def test_help_lists_every_command_and_each_explains_itself(run):
    text = run("help").stdout
    commands = [line.split()[0] for line in text.splitlines()
                if line.startswith("  ") and not line.startswith("   ")]
    assert "check" in commands and "help" in commands
    for command in set(commands) - {"help", "version"}:
        assert "usage:" in run(command, "--help").stdout
        assert run("help", command).stdout == run(command, "--help").stdout


def test_an_unknown_command_names_the_nearest(run):
    assert "did you mean check?" in run("chekc", code=2).stderr
    assert run(code=2).stderr.startswith("driftline watches")


def test_version_is_json_on_request(run):
    version = json.loads(run("version", "--json").stdout)["version"]
    assert version in run("version").stdout


def test_check_names_file_line_key_and_remedy(run, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("source:\n  topics: [a]\n  time_unt: ms\n  kind: kafka\n"
                      "kafka:\n  bootstrap.servers: localhost:9092\n")
    errors = run("check", "--config", config, code=2).stderr
    assert f"{config}:3: source.time_unt: no such key; did you mean source.time_unit?" in errors


def test_a_full_disk_is_a_failure(driftline):
    import subprocess
    with open("/dev/full", "wb") as full:
        done = subprocess.run([driftline, "help"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"standard output" in done.stderr
