#!/usr/bin/env python3
"""Boosted trees on the columns that the model gets for a pair: what the features
alone can give.

    bench/trees.py --data FOLDER [--sets uslegis:shuffle:random,...] [--seeds 3]

Learns from two passes over the training span (one negative each), stops by the
validation span, and prints average precision on validation and test as
`driftline evaluate` defines it. Needs LightGBM: pip install lightgbm numpy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lightgbm
import numpy

SETS = ("uslegis:stream:random,uslegis:shuffle:random,uslegis:strict:random,"
        "canparl:shuffle:random,canparl:strict:random,uci:strict:random,uci:strict:mixed")
PARAMETERS = {"objective": "binary", "metric": "average_precision", "learning_rate": 0.05,
              "num_leaves": 31, "min_data_in_leaf": 100, "feature_fraction": 0.5,
              "bagging_fraction": 0.7, "bagging_freq": 1, "lambda_l2": 5, "num_threads": 1,
              "verbose": -1}
HISTORICAL = 0.1  # share of past edges in the mixed negatives, as `train` has it


def table(program, path, ties, negatives, part, seed, draws, limit):
    with tempfile.NamedTemporaryFile() as out:
        sizes = json.loads(subprocess.run(
            [program, path, ties, negatives, part, str(seed), str(draws), str(limit),
             str(HISTORICAL), out.name], check=True, capture_output=True, text=True).stdout)
        rows = numpy.fromfile(out.name, numpy.float32)
    return rows.reshape(1 + draws, sizes["events"], len(sizes["columns"])), sizes["columns"]


def average_precision(positives, negatives):
    scores = numpy.concatenate([positives, negatives])
    labels = numpy.r_[numpy.ones(len(positives)), numpy.zeros(len(negatives))]
    order = numpy.argsort(-scores, kind="stable")
    scores, found = scores[order], numpy.cumsum(labels[order])
    steps = numpy.r_[numpy.nonzero(numpy.diff(scores))[0], len(scores) - 1]
    recall = found[steps] / found[-1]
    return float((numpy.diff(numpy.r_[0, recall]) * found[steps] / (steps + 1)).sum())


def measure(trees, rows, batch=200):
    scores = [trees.predict(draw, raw_score=True, num_threads=1) for draw in rows]
    pooled = [average_precision(scores[0], x) for x in scores[1:]]
    batches = [numpy.mean([average_precision(scores[0][i:i + batch], x[i:i + batch])
                           for i in range(0, len(x), batch)]) for x in scores[1:]]
    return float(numpy.mean(batches)), float(numpy.mean(pooled))


def one(a, name, ties, negatives, seed):
    path = str(Path(a.data) / f"{name}.csv.gz")
    passes = [table(a.features, path, ties, negatives, "train", 2 * seed + k, 1, a.limit)
              for k in range(2)]
    columns = passes[0][1]
    rows = numpy.concatenate([rows[k] for rows, _ in passes for k in (0, 1)])
    labels = numpy.concatenate([numpy.full(rows.shape[1], 1.0 - k) for rows, _ in passes
                                for k in (0, 1)])
    validation, _ = table(a.features, path, ties, "random", "validation", 0, 3, a.limit // 4)
    weights = numpy.r_[numpy.full(validation.shape[1], 3.0), numpy.ones(3 * validation.shape[1])]
    train = lightgbm.Dataset(rows, labels)
    stop = lightgbm.Dataset(numpy.concatenate(validation),
                            numpy.r_[numpy.ones(validation.shape[1]),
                                     numpy.zeros(3 * validation.shape[1])],
                            weight=weights, reference=train)
    trees = lightgbm.train({**PARAMETERS, "seed": seed + 1}, train, 400, valid_sets=[stop],
                           callbacks=[lightgbm.early_stopping(50, verbose=False)])
    figures = {"validation": measure(trees, validation)}
    kinds = ("random", "historical") if negatives == "mixed" else ("random",)
    for kind in kinds:
        test, _ = table(a.features, path, ties, kind, "test", 0, 10, a.limit // 4)
        figures["test, " + kind] = measure(trees, test)
    gains = sorted(zip(trees.feature_importance("gain"), columns), reverse=True)
    return figures, [column for _, column in gains[:5]]


def spread(values):
    return f"{numpy.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", default="build/bench/features", help="the program that "
                        "writes the columns")
    parser.add_argument("--data", default=os.environ.get("DRIFTLINE_DATA"))
    parser.add_argument("--sets", default=SETS, help="name:ties:negatives, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="training events a pass; 0: all")
    a = parser.parse_args()
    if a.data is None:
        sys.exit("where is the data? --data FOLDER or DRIFTLINE_DATA")
    print("| data, ties | negatives | span | AP, batch mean | AP, pooled | strongest columns |\n"
          "|---|---|---|---|---|---|")
    for each in a.sets.split(","):
        name, ties, negatives = each.split(":")
        runs = [one(a, name, ties, negatives, seed) for seed in range(a.seeds)]
        for span in runs[0][0]:
            print(f"| {name}, {ties} | {negatives} | {span} | "
                  f"{spread([figures[span][0] for figures, _ in runs])} | "
                  f"{spread([figures[span][1] for figures, _ in runs])} | "
                  f"{', '.join(runs[0][1])} |", flush=True)


main()
