"""train and evaluate as a user runs them, on files that are not made for us."""
import json
import random
import signal
import struct

import pytest

COLUMNS = ["--src", "payer", "--dst", "payee", "--time", "at", "--weight", "amount"]
SMALL = ["--epochs", "4", "--positives", "2000", "--batch", "25", "--validation", "500", "--window", "4",
         "--width", "16"]


def write_feed(path, events=6000, start=1764540000000):
    rng = random.Random(7)
    with open(path, "w") as out:
        out.write("id,payee,at,payer,amount\n")
        now = start
        for i in range(events):
            now += rng.randrange(1, 60000)
            payer = rng.randrange(60)
            payee = (payer % 10) * 6 + rng.randrange(6)
            out.write(f"{i},shop {payee},{now},\"u,{payer}\",{rng.randrange(1, 5000) / 100}\n")
    return path


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    return write_feed(tmp_path_factory.mktemp("feed") / "payments.csv")


@pytest.fixture(scope="module")
def model(run, feed, tmp_path_factory):
    out = tmp_path_factory.mktemp("model") / "payments.safetensors"
    done = run("train", feed, *COLUMNS, "--time-unit", "ms", "--out", out, "--json", *SMALL)
    report = json.loads(done.stdout)
    assert report["data"]["edges"] == 6000 and report["data"]["time_unit"] == "ms"
    assert report["validation"]["ap"] > 0.75
    assert "epoch 1 of 4" in done.stderr and "\r" not in done.stderr
    return out


def test_evaluate_prints_the_object_of_the_protocol(run, feed, model):
    report = json.loads(run("evaluate", feed, *COLUMNS, "--model", model, "--json", "--draws", "3").stdout)
    assert list(report) == ["data", "model", "protocol", "scored", "collisions", "ap", "auc", "mrr",
                            "hits_at_10", "bound", "calibration", "attention", "seconds",
                            "pairs_per_second"]
    assert list(report["data"]) == ["file", "hash", "edges", "nodes", "timestamps"]
    assert report["protocol"]["ties"] == "stream" and report["protocol"]["batch"] == 200
    assert report["protocol"]["draws"] == 3
    # 6 of 60 shops are a payer's own, so about a tenth of random negatives is.
    assert 0.85 < report["ap"]["pooled"] < 0.95
    assert report["bound"]["ap_pooled"] > 0.98
    assert len(report["attention"]["entropy"]) == 2
    assert report["calibration"]["ece"] < 0.1
    assert sum(count for _, _, count in report["calibration"]["bins"]) == 2 * report["scored"]


def test_the_same_seed_gives_the_same_file_and_figures(run, feed, model, tmp_path):
    again = tmp_path / "again.safetensors"
    one = tmp_path / "one.safetensors"
    flags = [feed, *COLUMNS, "--time-unit", "ms", "--json", *SMALL]
    versions = {json.loads(run("train", *flags, "--out", out, "--threads", threads).stdout)["validation"]["ap"]
                for out, threads in ((again, 2), (one, 1))}
    assert len(versions) == 1

    def figures(path, threads):
        report = json.loads(run("evaluate", feed, *COLUMNS, "--model", path, "--json", "--threads",
                                threads).stdout)
        return report["ap"], report["auc"], report["mrr"], report["attention"]

    assert figures(again, 1) == figures(again, 3) == figures(one, 2)


def test_a_model_is_not_measured_in_another_time_unit(run, feed, model):
    done = run("evaluate", feed, *COLUMNS, "--model", model, "--time-unit", "ticks", code=1)
    assert "ticks" in done.stderr and "ms" in done.stderr and done.stderr.count("\n") == 1


def test_the_inductive_setting_wants_held_out_nodes(run, feed, model, tmp_path):
    done = run("evaluate", feed, *COLUMNS, "--model", model, "--setting", "inductive", code=1)
    assert "--hold-out" in done.stderr
    out = tmp_path / "held.safetensors"
    run("train", feed, *COLUMNS, "--time-unit", "ms", "--out", out, "--hold-out", *SMALL)
    report = json.loads(run("evaluate", feed, *COLUMNS, "--model", out, "--setting", "inductive",
                            "--json").stdout)
    assert report["protocol"]["setting"] == "inductive"
    assert 0 < report["scored"] < 900 * 0.4


def test_baselines_need_no_training(run, feed):
    for name in ("edgebank", "pair-recency"):
        report = json.loads(run("evaluate", feed, *COLUMNS, "--model", name, "--json").stdout)
        assert report["model"] == {"architecture": name, "hash": None, "parameters": 0}
        assert report["ap"]["pooled"] > 0.7
        assert report["calibration"]["ece"] is None


def test_a_wrong_value_is_told_by_file_line_and_column(run, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("src,dst,t\na,b,1764540000000\na,b,yesterday\n")
    done = run("train", path, "--out", tmp_path / "m.safetensors", code=1)
    assert done.stderr == (f"driftline train: {path}: line 3: column t: \"yesterday\" is no whole "
                           "number; state --time-unit (s, ms, us, ns, iso8601, ticks) and give "
                           "whole numbers of it\n")
    done = run("train", path, "--out", tmp_path / "m.safetensors", "--time-unit", "s", code=1)
    assert "line 2" in done.stderr and "state the time unit ms" in done.stderr
    assert not (tmp_path / "m.safetensors").exists()


def test_flags_that_are_not_understood_say_so(run, tmp_path):
    for flags, text in ((["--epoch-count", "3"], "--epoch-count is no flag"),
                        (["--epochs"], "--epochs wants a value"),
                        (["--epochs", "0"], "from 1 to 1000"),
                        (["--ties", "loose"], "strict, stream, shuffle"),
                        (["--architecture", "foo"], "diffdyg, diffdyg-cached, mlp"),
                        ([], "--out MODEL")):
        done = run("train", "feed.csv", *flags, code=2)
        assert text in done.stderr and done.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_known_before_the_work(run, feed):
    done = run("train", feed, *COLUMNS, "--out", "/nonexistent/m.safetensors", code=1)
    assert "/nonexistent/m.safetensors" in done.stderr


def test_reads_standard_input(run, feed, model):
    report = json.loads(run("evaluate", "-", *COLUMNS, "--model", model, "--json", "--draws", "1",
                            stdin=feed.read_text()).stdout)
    assert report["data"]["edges"] == 6000


def test_us_legis_reaches_the_level_of_the_prototype(run, data, tmp_path):
    """Batch-mean AP with random negatives on the test span."""
    path = data("uslegis.csv.gz")
    for ties, flags, least in (("stream", [], 0.90), ("shuffle", [], 0.875)):
        out = tmp_path / f"{ties}.safetensors"
        run("train", path, "--ties", ties, "--out", out, "--json", *flags, timeout=1500)
        report = json.loads(run("evaluate", path, "--model", out, "--json", "--candidates", "0",
                                timeout=600).stdout)
        assert report["protocol"]["ties"] == ties
        assert report["ap"]["batch_mean"] >= least
        assert report["ap"]["pooled"] <= report["bound"]["ap_pooled"]


def test_a_store_is_learnt_from_like_the_file_that_went_into_it(run, feed, model, tmp_path):
    store, out = tmp_path / "edges.db", tmp_path / "stored.safetensors"
    run("ingest", feed, "--store", store, "--time-unit", "ms", "--map", "src=payer", "--map",
        "dst=payee", "--map", "time=at", "--map", "weight=amount")
    report = json.loads(run("train", "--store", store, "--out", out, "--json", *SMALL).stdout)
    assert report["data"]["edges"] == 6000 and report["data"]["time_unit"] == "ms"

    def figures(path):
        report = json.loads(run("evaluate", feed, *COLUMNS, "--model", path, "--json").stdout)
        return report["ap"], report["auc"], report["mrr"]

    assert figures(out) == figures(model)


def test_train_wants_one_feed_and_a_store_that_is_there(run, feed, tmp_path):
    out = tmp_path / "none.safetensors"
    done = run("train", feed, "--store", tmp_path / "none.db", "--out", out, code=2)
    assert "--store" in done.stderr
    done = run("train", "--store", tmp_path / "none.db", "--out", out, code=1)
    assert "none.db" in done.stderr and done.stderr.count("\n") == 1


def test_a_model_in_another_time_unit_stops_the_start_before_a_store_is_made(run, feed, model, tmp_path):
    store = tmp_path / "s.db"
    refused = run("serve", "--set", "source.kind=file", "--set", f"source.path={feed}", "--set",
                  "source.encoding=csv", "--set", "source.time_unit=us", "--set",
                  f"store.path={store}", "--set", f"model.path={model}", code=1)
    assert "source.time_unit is us; set it to the feed's unit" in refused.stderr
    assert not store.exists()


def test_weights_that_are_numbers_but_score_none_are_refused(run, feed, model, tmp_path):
    """Each may be finite, and their products overflow."""
    bytes_ = bytearray(model.read_bytes())
    size = struct.unpack("<Q", bytes_[:8])[0]
    tensors = json.loads(bytes_[8:8 + size])
    for name, tensor in tensors.items():
        if name == "__metadata__" or name.startswith(("drift", "encoding")) or tensor["dtype"] != "F32":
            continue
        begin, end = (8 + size + at for at in tensor["data_offsets"])
        bytes_[begin:end] = struct.pack("<f", 1e30) * ((end - begin) // 4)
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(bytes_)
    for arguments in (("check", "--model", broken),
                      ("evaluate", feed, *COLUMNS, "--model", broken, "--time-unit", "ms"),
                      ("serve", "--set", "source.kind=file", "--source", feed, "--encoding", "csv",
                       "--time-unit", "ms", "--store", tmp_path / "s.db", "--model", broken)):
        errors = run(*arguments, code=1).stderr
        assert "broken.safetensors: the model gives a score that is no finite number" in errors, errors
    assert not (tmp_path / "s.db").exists()


def test_a_signal_in_the_middle_of_a_long_file_is_heard_at_once(run, start, model, tmp_path):
    """And the same model is not taken anew: alerts and the drift reference stay."""
    long = tmp_path / "long.csv"
    run("simulate", "--out", long, "--events", 60000, "--nodes", 500)
    service = start("serve", "--set", "source.kind=file", "--source", long, "--encoding", "csv",
                    "--time-unit", "ms", "--store", tmp_path / "s.db", "--model", model)
    service.process.send_signal(signal.SIGHUP)
    service.wait("it is told", lambda: "is served already" in service.log_text())
    assert "end of input" not in service.log_text()
    assert "now serving" not in service.log_text()
