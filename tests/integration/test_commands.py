"""The program's front door: help, versions, unknown words, configuration errors."""
import json
import re
import socket
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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


def test_the_example_configuration_is_valid_and_names_true_defaults(run, tmp_path):
    """A line that is commented out shows the default: it must not rot."""
    example = ROOT / "deploy" / "driftline.yaml"
    printed = run("check", "--config", example, "--offline", "--set", "model.path=",
                  "--print").stdout
    section, stale = "", []
    for line in example.read_text().splitlines():
        if match := re.match(r"([a-z]+):", line):
            section = match[1]
        match = re.match(r"  # ([a-z_]+): +(.*?)( +#.*)?$", line)
        if match and section != "kafka" and "an example" not in line:
            in_force = re.search(rf"(?ms)^{section}:\n.*?^  {match[1]}: (.*?)  # (.*?)$", printed)
            assert in_force, f"{section}.{match[1]} is no key"
            said = {"16M": "16000000", "1M": "1000000"}.get(match[2], match[2])
            if in_force[1].strip('"') != said:
                stale.append(f"{section}.{match[1]}: {said} is {in_force[1]}")
    assert not stale



def test_check_reports_on_a_store_and_says_when_it_is_damaged(run, tmp_path):
    missing = run("check", "--store", tmp_path / "none.db", code=1).stderr
    assert "none.db" in missing
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database" * 500)
    assert "broken.db" in run("check", "--store", broken, code=1).stderr


def test_check_names_a_configuration_that_cannot_be_read(run, tmp_path):
    errors = run("check", "--config", tmp_path / "none.yaml", code=2).stderr
    assert "none.yaml: No such file" in errors and len(errors.splitlines()) == 1
    answer = json.loads(run("check", "--json", "--set", "log.levl=x", code=2).stdout)
    assert not answer["ok"] and "log.level" in answer["problems"][0]["text"]


def test_check_refuses_a_file_that_is_no_model(run, tmp_path):
    broken = tmp_path / "m.safetensors"
    broken.write_bytes(b"\x10" + b"\0" * 40)
    assert "m.safetensors" in run("check", "--model", broken, code=1).stderr


def test_a_port_that_is_taken_is_told_before_a_store_is_made(run, tmp_path):
    feed, store = tmp_path / "feed.csv", tmp_path / "s.db"
    feed.write_text("src,dst,time\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for key in "rpc.listen", "http.listen":
            errors = run("serve", "--set", "source.kind=file", "--source", feed, "--encoding",
                         "csv", "--time-unit", "ms", "--store", store, "--set",
                         "rpc.listen=127.0.0.1:0", "--set", "http.listen=127.0.0.1:0", "--set",
                         f"{key}={address}", code=1).stderr
            assert f"{key}: " in errors and address in errors, errors
            assert sorted(p.name for p in tmp_path.iterdir()) == ["feed.csv"]


def test_a_flipped_bit_in_a_stored_page_is_told_and_never_served(run, tmp_path):
    import sqlite3
    feed, store = tmp_path / "feed.csv", tmp_path / "s.db"
    run("simulate", "--out", feed, "--events", 3000, "--nodes", 300)
    run("ingest", feed, "--time-unit", "ms", "--store", store)
    with sqlite3.connect(store) as db:
        page, data = db.execute("SELECT id, data FROM checkpoint WHERE id >> 32 = 1"
                                " ORDER BY length(data) DESC LIMIT 1").fetchone()
    file = bytearray(store.read_bytes())
    part = data[100:160]  # stored in one piece, once
    assert file.count(part) == 1
    file[file.find(part) + 30] ^= 4
    store.write_bytes(file)
    for command in (["check", "--store", store],
                    ["serve", "--set", "source.kind=file", "--source", feed, "--encoding", "csv",
                     "--time-unit", "ms", "--store", store, "--set", "rpc.listen=127.0.0.1:0",
                     "--set", "http.listen=127.0.0.1:0"]):
        errors = run(*command, code=1).stderr
        assert f"checkpoint page {page} does not match its checksum" in errors, errors
    assert "restore a backup" in errors


def test_a_csv_column_that_is_missing_is_told_before_a_store_is_made(run, tmp_path):
    feed, store = tmp_path / "feed.csv", tmp_path / "s.db"
    feed.write_text("payer,payee,at\na,b,1790000000000\n")
    flags = ("--encoding", "csv", "--time-unit", "ms", "--store", store, "--map",
             "src=payer,dst=shop,time=at")
    as_source = ("--set", "source.kind=file", "--source", feed, "--set", "rpc.listen=off",
                 "--set", "http.listen=off")
    for errors in (run("check", *as_source, *flags, code=1).stderr,
                   run("serve", *as_source, *flags, code=1).stderr,
                   run("ingest", feed, *flags, code=1).stderr):
        line = [line for line in errors.splitlines() if "shop" in line]
        assert len(line) == 1 and str(feed) in line[0], errors
        assert "payer, payee, at" in line[0] and "source.mapping.dst" in line[0], errors
    assert not store.exists()
