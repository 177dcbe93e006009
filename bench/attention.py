#!/usr/bin/python3
"""What the parts of the model are worth, as tables in Markdown.

    bench/attention.py ablation   --data FOLDER [--sets uslegis:shuffle,uci:strict] [--seeds 3]
    bench/attention.py dispersion --data FOLDER [--windows 8,32,128,256] [--seeds 5]

ablation: the defaults, and one part left out at a time; average precision,
attention entropy and the share of the top 5 % of tokens on the test span, mean
and range over training seeds.

dispersion: differential against softmax attention at equal parameter counts, by
window length, with and without pair memory, and with irrelevant neighbours put
into a quarter and into half of each window at test time. "Partners": the share
of attention on tokens that name the other endpoint, over what uniform attention
would give them. A model of width 16 (softmax 18, which makes up for the second
pair of projections), one head, two layers.

Every training is kept in --work, by program and budget; a run that is there is
not done again.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

UNITS = {"uci": "s"}
ABLATIONS = [("all of it", []), ("softmax attention", ["--attention", "softmax"]),
             ("without RoPE", ["--no-rope"]), ("without co-occurrence", ["--no-cooccurrence"]),
             ("without time encoding", ["--no-time-encoding"]),
             ("without pair memory", ["--no-pair-memory"])]


def run(arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}:\n{done.stderr[-2000:]}")
    return done.stdout


class Runner:
    def __init__(self, a):
        self.a = a
        program = hashlib.sha256(Path(a.driftline).read_bytes()).hexdigest()[:8]
        self.work = Path(a.work) / f"{program}-{a.epochs}x{a.positives}"
        self.work.mkdir(parents=True, exist_ok=True)

    def common(self, name):
        return [self.a.data / f"{name}.csv.gz", "--time-unit", UNITS.get(name, "ticks"),
                "--threads", self.a.threads, "--json"]

    def train(self, key, name, ties, seed, flags):
        model = self.work / f"{key}-{name}-{ties}-{seed}.safetensors"
        if not model.exists():
            out = run([self.a.driftline, "train", *self.common(name), "--ties", ties, "--seed",
                       seed, "--epochs", self.a.epochs, "--positives", self.a.positives,
                       "--architecture", "diffdyg", "--out", model, *flags])
            model.with_suffix(".json").write_text(out)
        return model

    def evaluate(self, model, name, ties, noise=0):
        kept = model.with_suffix(f".{self.a.limit}.{noise}.json")
        if not kept.exists():
            kept.write_text(run([self.a.driftline, "evaluate", *self.common(name), "--model", model,
                                 "--ties", ties, "--draws", 3, "--candidates", 0, "--limit",
                                 self.a.limit, "--noise-neighbours", noise]))
        return json.loads(kept.read_text())


def spread(values, digits=3):
    if not values:
        return "–"
    mean = sum(values) / len(values)
    return f"{mean:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mean(values):
    return sum(values) / len(values)


def ablation(runner, a):
    print("| data, ties | model | parameters | AP, batch mean | AP, pooled | entropy by layer | "
          "top 5 % share |\n|---|---|---|---|---|---|---|")
    for pair in a.sets.split(","):
        name, ties = pair.split(":")
        negatives = ["--negatives", "random"] if ties == "strict" else []
        for label, flags in ABLATIONS:
            key = "ablation-" + label.replace(" ", "-")
            results = [runner.evaluate(runner.train(key, name, ties, seed, negatives + flags), name,
                                       ties) for seed in range(a.seeds)]
            layers = zip(*(r["attention"]["entropy"] for r in results))
            print(f"| {name}, {ties} | {label} | {results[0]['model']['parameters']} | "
                  f"{spread([r['ap']['batch_mean'] for r in results])} | "
                  f"{spread([r['ap']['pooled'] for r in results])} | "
                  f"{', '.join(f'{mean(x):.2f}' for x in layers)} | "
                  f"{mean([r['attention']['top5_share'] for r in results]):.2f} |", flush=True)


def dispersion(runner, a):
    print("| W | pair memory | attention | parameters | AP | with W/4 noise | with W/2 noise | "
          "entropy, without and with W/2 noise | partners, likewise |\n" + "|---" * 9 + "|")
    name, ties = a.sets.split(",")[0].split(":")
    for window in map(int, a.windows.split(",")):
        for memory in (1, 0):
            for kind, width in (("differential", 16), ("softmax", 18)):
                flags = ["--negatives", "random", "--attention", kind, "--width", width, "--heads",
                         1, "--window", window] + ([] if memory else ["--no-pair-memory"])
                rows = {0: [], window // 4: [], window // 2: []}
                for seed in range(a.seeds):
                    model = runner.train(f"dispersion-{kind}-{window}-{memory}", name, ties, seed,
                                         flags)
                    for noise in rows:
                        rows[noise].append(runner.evaluate(model, name, ties, noise))
                ap = [spread([r["ap"]["pooled"] for r in results]) for results in rows.values()]
                ends = (rows[0], rows[window // 2])
                entropy = [f"{mean([mean(r['attention']['entropy']) for r in x]):.2f}"
                           for x in ends]
                partners = [f"{mean([mean(r['attention']['partner_share']) / r['attention']['partner_uniform'] for r in x]):.2f}"
                            for x in ends]
                print(f"| {window} | {'with' if memory else 'without'} | {kind} | "
                      f"{rows[0][0]['model']['parameters']} | {' | '.join(ap)} | "
                      f"{', '.join(entropy)} | {', '.join(partners)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ablation", "dispersion"))
    parser.add_argument("--driftline", default="build/driftline")
    parser.add_argument("--data", type=Path, default=os.environ.get("DRIFTLINE_DATA"),
                        help="folder of NAME.csv.gz (DRIFTLINE_DATA)")
    parser.add_argument("--work", default="build/bench/attention")
    parser.add_argument("--sets", help="name:ties, separated by commas")
    parser.add_argument("--windows", default="8,32,128,256")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--positives", type=int)
    parser.add_argument("--limit", type=int, default=3000, help="test events, spread evenly")
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    if a.data is None:
        sys.exit("where is the data? --data FOLDER or DRIFTLINE_DATA")
    a.data = Path(a.data)
    small = a.what == "dispersion"
    a.sets = a.sets or ("uci:strict" if small else "uslegis:shuffle,uci:strict")
    a.seeds = a.seeds or (5 if small else 3)
    a.epochs = a.epochs or (8 if small else 10)
    a.positives = a.positives or (4000 if small else 8000)
    (dispersion if small else ablation)(Runner(a), a)


main()
