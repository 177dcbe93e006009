#!/usr/bin/env python3
"""Golden tensors for the architectures: an independent implementation in PyTorch.

    make golden          (apt-get install python3-torch, or pip install torch)
    python3 tests/golden/diffdyg.py OUT_FOLDER

Draws queries and parameters from a seed, computes input columns, logits, loss,
gradients, attention statistics and ten AdamW steps in float64, and writes all
of it as safetensors. tests/unit/model/golden_network.c (float) and
tests/grad/golden.c (double) compare the C program with it.

The model here is written from its description: one pair at a time, autograd for
the gradients, no shared code or layout with the C program. What is shared is
the names and shapes of the parameters and the meaning of the input columns
(model/features.h).
"""
import json
import math
import os
import struct
import sys

import numpy
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

RING, HORIZONS, FLAG_LAGS, STEPS = 6, 4, 4, 6


# ---- inputs -----------------------------------------------------------------

def draw_side(rng, node, window, features, now, ordinal, events, fresh):
    """One endpoint: its window (newest first) and its state, as plain numbers."""
    side = {"node": node, "window": [], "events": 0, "out": 0, "in": 0,
            "first_time": 0, "last_out_time": 0, "last_in_time": 0,
            "first_seq": 0, "last_out_seq": 0, "last_in_seq": 0,
            "groups": [(0, 0, 0, 0.0)] * RING, "rate_out": [0.0] * HORIZONS,
            "rate_in": [0.0] * HORIZONS}
    if fresh:
        return side
    count = int(rng.integers(1, window + 3))
    times = sorted((int(now - rng.integers(0, 90)) for _ in range(count)), reverse=True)
    seqs = sorted((int(s) for s in rng.choice(events, count, replace=False)), reverse=True)
    ordinals = sorted((int(ordinal - rng.integers(0, 6)) for _ in range(count)), reverse=True)
    for time, seq, o in zip(times, seqs, ordinals):
        side["window"].append({
            "time": time, "seq": seq, "peer": int(rng.integers(0, 6)), "ordinal": o,
            "weight": float(numpy.float32(rng.normal() * 3)), "out": int(rng.integers(0, 2)),
            "features": [float(numpy.float32(x)) for x in rng.normal(size=features)]})
    side["out"], side["in"] = int(rng.integers(0, 9)), int(rng.integers(0, 9))
    side["events"] = max(1, side["out"] + side["in"])
    if side["out"] + side["in"] == 0:
        side["in"] = 1
    side["first_time"], side["first_seq"] = int(now - 100), int(rng.integers(0, 10))
    side["last_out_time"] = int(now - rng.integers(0, 60))
    side["last_in_time"] = int(now - rng.integers(0, 60))
    side["last_out_seq"] = int(rng.integers(0, events))
    side["last_in_seq"] = int(rng.integers(0, events))
    o, groups = ordinal - int(rng.integers(0, 3)), []
    for _ in range(int(rng.integers(1, RING + 1))):
        if o < 1:
            break
        groups.append((o, int(rng.integers(0, 5)), int(rng.integers(1, 5)),
                       float(numpy.float32(rng.random() * 5))))
        o -= int(rng.integers(1, 3))
    side["groups"] = groups + [(0, 0, 0, 0.0)] * (RING - len(groups))
    side["rate_out"] = [float(numpy.float32(x)) for x in rng.random(HORIZONS) * 9]
    side["rate_in"] = [float(numpy.float32(x)) for x in rng.random(HORIZONS) * 9]
    return side


def draw_pair(rng, kind, now, ordinal, events):
    """kind: 0 nothing, 1 this way, 2 back, 3 both."""
    pair = {key: [0, 0] for key in ("count", "last_ordinal", "last_time", "last_seq",
                                    "last_weight", "decayed", "flags")}
    pair["flags_ordinal"] = 0
    for way in range(2):
        if not kind >> way & 1:
            continue
        pair["count"][way] = int(rng.integers(1, 7))
        pair["last_ordinal"][way] = ordinal - int(rng.integers(0, 5))
        pair["last_time"][way] = int(now - rng.integers(0, 60))
        pair["last_seq"][way] = int(rng.integers(0, events))
        pair["last_weight"][way] = float(numpy.float32(rng.normal() * 2))
        pair["decayed"][way] = float(numpy.float32(rng.random() * 3))
        pair["flags"][way] = int(rng.integers(0, 256))
    if kind:
        pair["flags_ordinal"] = max(pair["last_ordinal"])
    return pair


def draw_between(rng):
    """What the two have in common in the longer history."""
    order = int(rng.integers(-40, 40))
    return {"ways": [int(x) for x in rng.integers(0, 9, 4)],
            "ways_now": [int(x) for x in rng.integers(0, 5, 4)], "shared": int(rng.integers(0, 9)),
            "shared_recent": float(numpy.float32(rng.random() * 3)),
            "company": [float(numpy.float32(x)) for x in rng.random(3) * (9, 4, 1)],
            "distinct": [float(numpy.float32(x)) for x in rng.random(2)],
            "order": [int(rng.integers(0, 4)) > 0, order == 1, int(rng.integers(0, 2)), order]}


def draw_query(rng, index, config):
    now, ordinal, events = 1000 + 37 * index, 20 + index, 500
    query = {"time": now, "ordinal": ordinal, "events": events, "snapshots": [],
             "labels": [1.0, 0.0, 0.25, 1.0, 0.0]}
    for lag in range(RING):
        query["snapshots"].append((ordinal - lag, int(rng.integers(4, 9)), int(rng.integers(4, 9))))
    draw = lambda node, fresh: draw_side(rng, node, config["window"], config["features"], now,
                                         ordinal, events, fresh)
    query["source"] = draw(2, False)
    query["candidates"] = [draw(node, node == 7) for node in (0, 1, 7, 3, 4)]
    query["pairs"] = [draw_pair(rng, kind, now, ordinal, events) for kind in (3, 1, 0, 2, 3)]
    query["between"] = [draw_between(rng) for _ in query["pairs"]]
    query["distinct"] = [float(numpy.float32(x)) for x in rng.random(2)]
    return query


# ---- input columns ----------------------------------------------------------

def L(x):
    return math.log(1 + x) / 4


def z(encoding, weight):
    return (math.copysign(math.log1p(abs(weight)), weight) - encoding["mean"]) / encoding["sd"]


def elapsed(encoding, query, time):
    return max(0, query["time"] - time) / encoding["gap"]


def node_columns(config, encoding, query, side):
    ages = config["arrival_age"]
    last, previous = side["groups"][0], side["groups"][1]
    lag = query["ordinal"] - last[0]
    exists = last[0] > 0
    now = exists and lag == 0
    before = exists and not now
    share = lambda group: group[1] / (group[1] + group[2])
    second = now and previous[0] > 0
    second_lag = query["ordinal"] - previous[0]
    seen = side["events"] > 0
    age = lambda seq: L(query["events"] - seq) if ages else 0
    columns = [
        seen, now, L(last[1] + last[2]) if now else 0, share(last) if now else 0,
        exists and lag == 1, L(lag) if exists else 0,
        L(last[1] + last[2]) if before else 0, share(last) if before else 0,
        second and second_lag == 1, L(second_lag) if second else 0,
        L(previous[1] + previous[2]) if second else 0, share(previous) if second else 0,
        L(side["events"]) / 2,
        side["out"] > 0, side["in"] > 0, side["out"] / (side["out"] + side["in"]) if seen else 0,
        L(elapsed(encoding, query, side["last_out_time"])) if side["out"] else 0,
        L(elapsed(encoding, query, side["last_in_time"])) if side["in"] else 0,
        age(side["last_out_seq"]) if side["out"] else 0,
        age(side["last_in_seq"]) if side["in"] else 0,
        L(elapsed(encoding, query, side["first_time"])) if seen else 0,
        age(side["first_seq"]) if seen else 0,
        (query["events"] - side["first_seq"]) / query["events"] if seen and ages else 0]
    for rates, seq in ((side["rate_out"], side["last_out_seq"]),
                       (side["rate_in"], side["last_in_seq"])):
        for rate, power in zip(rates, (7, 10, 13, 16)):
            faded = rate * math.exp(-(query["events"] - 1 - seq) / 2 ** power)
            columns.append(L(faded) if seen and ages else 0)
    at_lag = {query["ordinal"] - group[0]: group for group in side["groups"] if group[0] > 0}
    whole = {query["ordinal"] - s[0]: s for s in query["snapshots"]}
    columns += [lag in at_lag for lag in range(RING)]
    for part in (1, 2):
        columns += [at_lag[lag][part] / whole[lag][part] if lag in at_lag else 0
                    for lag in range(RING)]
    columns += [z(encoding, at_lag[lag][3]) if lag in at_lag else 0 for lag in range(RING)]
    return columns


def pair_columns(config, encoding, query, pair, way, own, other, other_node):
    """way: which direction of the pair leads from this side to the other; own,
    other: the two windows' peers."""
    columns = [0.0] * 10
    directed = [[0.0, 0.0] for _ in range(6)]
    flags = []
    total = sum(pair["count"])
    if config["pair_memory"] and total:
        ways = [w for w in range(2) if pair["count"][w]]
        last = max(ways, key=lambda w: pair["last_seq"][w])
        lag = query["ordinal"] - pair["last_ordinal"][last]
        columns = [1, lag == 0, lag == 1, last == way, L(lag), z(encoding, pair["last_weight"][last]),
                   L(total), pair["count"][way] / total, 0, len(ways) == 2]
    for i, w in enumerate((way, 1 - way)):
        shown = config["pair_memory"] and pair["count"][w] > 0
        since = query["ordinal"] - pair["flags_ordinal"]
        if shown:
            for column, value in enumerate((
                    1, L(query["ordinal"] - pair["last_ordinal"][w]),
                    L(elapsed(encoding, query, pair["last_time"][w])),
                    L(query["events"] - pair["last_seq"][w]) if config["arrival_age"] else 0,
                    L(pair["count"][w]), L(pair["decayed"][w] * 0.5 ** since))):
                directed[column][i] = value
        for lag in range(FLAG_LAGS):
            bit = lag - since
            flags.append(shown and bit >= 0 and pair["flags"][w] >> bit & 1)
    if config["pair_memory"] and other_node in own:
        columns[8] = 1 / (1 + own.index(other_node))
    common = set(own) & set(other) if config["cooccurrence"] else set()
    rank = 1 / (1 + min(own.index(peer) for peer in common)) if common else 0
    return columns + sum(directed, []) + flags + [L(len(common)), rank]


def longer_columns(config, query, between, side):
    forth, back, from_one, to_one = (0, 1, 2, 3) if side == 0 else (1, 0, 2, 3)
    columns = list(query["distinct"] if side == 0 else between["distinct"])
    peers = [L(between[key][way]) for key in ("ways", "ways_now")
             for way in (forth, back, from_one, to_one)]
    peers += [L(between["shared"]), between["shared_recent"]]
    total, mean, share = between["company"]
    peers += [L(total), L(mean), share] if side == 1 else [0, 0, 0]
    columns += peers if config["cooccurrence"] else [0] * len(peers)
    exists, following, same, order = between["order"]
    if not (config["arrival_age"] and side == 1 and exists):
        return columns + [0] * 6
    return columns + [1, following, L(max(0, order)), L(max(0, -order)), same, same and order > 0]


def read(encoding, side, columns):
    """Standardised by what the reading says of this side."""
    mean, scale = torch.tensor(encoding["scaling"]).view(2, 2, -1)[:, side]
    return ((torch.tensor([float(x) for x in columns]) - mean) * scale).clamp(-10, 10)


def stepped():
    """The columns that have steps: all but flags and the candidate's own on the
    source's side; by their place among the 108 of a side."""
    flags = {0, 1, 4, 8, 13, 14, *range(31, 37), *range(55, 59), 64, 65, 66, *range(77, 85)}
    both = [c for c in range(99) if c not in flags]
    return both + [108 + c for c in both + list(range(99, 102)) + [104, 105]]


def steps(encoding, own):
    z, rows = torch.cat(own)[stepped()], torch.tensor(encoding["steps"])
    return [((z - rows[k]) * rows[STEPS + k]).clamp(0, 1) / 2 for k in range(STEPS)]


def token_columns(config, encoding, query, event, other_node):
    lag = query["ordinal"] - event["ordinal"]
    since = elapsed(encoding, query, event["time"])
    features = [(x - m) / s for x, m, s in zip(event["features"], encoding["feature_mean"],
                                               encoding["feature_sd"])]
    return [z(encoding, event["weight"]), 1 if event["out"] else -1, event["peer"] == other_node,
            L(since), lag == 0, lag == 1,
            L(query["events"] - event["seq"]) if config["arrival_age"] else 0] + features


# ---- model ------------------------------------------------------------------

def token_shapes(config):
    d = config["width"]
    tokens = 7 + config["features"] + 16 * config["time_encoding"] + 16 * config["cooccurrence"]
    shapes = {"token.weight": (tokens, d), "token.bias": (1, d)}
    if config["time_encoding"]:
        shapes.update({"time.frequency": (1, 16), "time.phase": (1, 16)})
    if config["cooccurrence"]:
        shapes.update({"cooccurrence.0.weight": (1, 16), "cooccurrence.0.bias": (1, 16),
                       "cooccurrence.1.weight": (16, 16), "cooccurrence.1.bias": (1, 16)})
    return shapes


def layer_shapes(config):
    d, heads, maps = config["width"], config["heads"], 2 if config["differential"] else 1
    shapes = {}
    for layer in range(config["layers"]):
        p = f"layer.{layer}."
        shapes[p + "attention_norm"] = (1, d)
        shapes[p + "qkv.weight"] = (d, (2 * maps + 1) * d)
        if config["differential"]:
            shapes[p + "lambda"] = (4, d // heads)
        shapes.update({p + "output.weight": (d, d), p + "mlp_norm": (1, d),
                       p + "mlp.0.weight": (d, 2 * d), p + "mlp.0.bias": (1, 2 * d),
                       p + "mlp.1.weight": (2 * d, d), p + "mlp.1.bias": (1, d)})
    shapes["final_norm"] = (1, d)
    return shapes


def parameter_shapes(config, own_columns):
    d, kind = config["width"], config["architecture"]
    shapes = {} if kind == "mlp" else {**token_shapes(config), **layer_shapes(config)}
    if kind == "diffdyg":
        shapes.update({"self.weight": (own_columns, d), "self.bias": (1, d), "side": (2, d),
                       "head.0.weight": (2 * d, d), "head.0.bias": (1, d),
                       "head.1.weight": (d, 1), "head.1.bias": (1, 1)})
    else:
        columns = 2 * (own_columns + 2) + STEPS * len(stepped()) * config["steps"] + (3 * d if kind == "diffdyg-cached" else 0)
        shapes.update({"pair.0.weight": (columns, 2 * d), "pair.0.bias": (1, 2 * d),
                       "pair.1.weight": (2 * d, d), "pair.1.bias": (1, d),
                       "pair.2.weight": (d, 1), "pair.2.bias": (1, 1)})
    return shapes


def rms(x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def rope(x, positions):
    """x (n, width): turns the pair (i, i + width/2) by position · 10000^(−2i/width)."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-torch.arange(half) / half)
    low, high = x[:, :half], x[:, half:]
    return torch.cat([low * angles.cos() - high * angles.sin(),
                      high * angles.cos() + low * angles.sin()], 1)


def attention(config, p, layer, x, positions, watch):
    d, heads = config["width"], config["heads"]
    width, maps = d // heads, 2 if config["differential"] else 1
    name = f"layer.{layer}."
    projected = rms(x) * p[name + "attention_norm"] @ p[name + "qkv.weight"]
    queries, keys, values = torch.split(projected, [maps * d, maps * d, d], 1)
    start = 0.8 - 0.6 * math.exp(-0.3 * layer)
    if config["differential"]:
        a, b, c, e = p[name + "lambda"]
        scale = torch.exp(a @ b) - torch.exp(c @ e) + start
    outputs = []
    for head in range(heads):
        weights = []
        for m in range(maps):
            at = slice(m * d + head * width, m * d + (head + 1) * width)
            q, k = queries[:, at], keys[:, at]
            if config["rope"]:
                q, k = rope(q, positions), rope(k, positions)
            weights.append(torch.softmax(q @ k.T / math.sqrt(width), 1))
        mixed = weights[0] - scale * weights[1] if maps == 2 else weights[0]
        watch.append(mixed.detach())
        out = mixed @ values[:, head * width:(head + 1) * width]
        outputs.append(rms(out) * (1 - start) if maps == 2 else out)
    return torch.cat(outputs, 1) @ p[name + "output.weight"]


def watch_summary(watched):
    """Entropy over log n, share of the top 5 %, attention received, and that by head."""
    shares = torch.stack([m.abs() / m.abs().sum(1, keepdim=True) for m in watched])
    n = shares.shape[1]
    entropy = -(shares * shares.log()).sum(2).mean() / math.log(n) if n > 1 else 0
    top = shares.sort(2, descending=True).values[:, :, :math.ceil(0.05 * n)].sum(2).mean()
    return float(entropy), float(top), shares.mean((0, 1)), shares.mean(1).flatten()


def token(config, encoding, p, now, event, other_node, windows):
    """A window token. `now`: what times are told against; windows: the peers of
    those in which its neighbour is counted."""
    columns = [torch.tensor([float(x) for x in token_columns(config, encoding, now, event,
                                                              other_node)])]
    if config["time_encoding"]:
        since = min(1000, elapsed(encoding, now, event["time"]))
        columns.append(torch.cos(p["time.frequency"][0] * since + p["time.phase"][0]))
    if config["cooccurrence"]:
        seen = 0
        for peers in windows:
            count = torch.tensor([[math.log1p(peers.count(event["peer"]))]])
            hidden = F.relu(count @ p["cooccurrence.0.weight"] + p["cooccurrence.0.bias"])
            seen = seen + hidden @ p["cooccurrence.1.weight"] + p["cooccurrence.1.bias"]
        columns.append(seen[0])
    return torch.cat(columns) @ p["token.weight"] + p["token.bias"][0]


def layers(config, p, x, positions):
    """x (n, d) through the layers and the final norm, and the attention of each."""
    summaries = []
    for layer in range(config["layers"]):
        watch, name = [], f"layer.{layer}."
        x = x + attention(config, p, layer, x, positions, watch)
        summaries.append(watch_summary(watch))
        hidden = rms(x) * p[name + "mlp_norm"] @ p[name + "mlp.0.weight"] + p[name + "mlp.0.bias"]
        hidden = F.gelu(hidden, approximate="tanh")
        x = x + hidden @ p[name + "mlp.1.weight"] + p[name + "mlp.1.bias"]
    return rms(x) * p["final_norm"], summaries


def score_joint(config, encoding, p, query, sides, windows, peers, own):
    rows, positions = [], []
    for s in range(2):
        rows.append(own[s] @ p["self.weight"] + p["self.bias"][0] + p["side"][s])
        positions.append(0)
        for place, event in enumerate(windows[s]):
            rows.append(token(config, encoding, p, query, event, sides[1 - s]["node"], peers) +
                        p["side"][s])
            positions.append(place + 1)
    x, summaries = layers(config, p, torch.stack(rows), torch.tensor(positions, dtype=torch.float64))
    n = 1 + len(windows[0])
    both = torch.cat([x[:n].mean(0), x[n:].mean(0)])
    hidden = F.gelu(both @ p["head.0.weight"] + p["head.0.bias"][0], approximate="tanh")
    return (hidden @ p["head.1.weight"] + p["head.1.bias"][0])[0], summaries


def encode(config, encoding, p, window):
    """A window by itself, told as of its newest event."""
    peers, newest = [event["peer"] for event in window], window[0]
    now = {"time": newest["time"], "ordinal": newest["ordinal"], "events": newest["seq"] + 1}
    rows = [token(config, encoding, p, now, event, None, [peers]) for event in window]
    x, summaries = layers(config, p, torch.stack(rows), torch.arange(float(len(rows))))
    return x.mean(0), summaries


def score_two_stage(config, encoding, p, query, windows, own):
    inputs, summaries = list(own) + (steps(encoding, own) if config["steps"] else []), []
    for window in windows:
        newest = window[0] if window else None
        inputs.append(torch.tensor([L(elapsed(encoding, query, newest["time"])),
                                    L(query["events"] - newest["seq"]) if config["arrival_age"]
                                    else 0.0] if newest else [0.0, 0.0]))
    if config["architecture"] == "diffdyg-cached":
        d = config["width"]
        both = [encode(config, encoding, p, window) if window else (torch.zeros(d), None)
                for window in windows]
        u, v = both[0][0], both[1][0]
        inputs = [u, v, u * v] + inputs
        for layer in range(config["layers"]):
            at = [summary[layer] if summary else None for _, summary in both]
            there = [one for one in at if one]
            alone, heads = torch.zeros(1), config["heads"]
            received, by_head = [], [[] for _ in range(heads)]
            for one in at:
                received += [alone] + ([one[2] / len(there)] if one else [])
                for h in range(heads):
                    by_head[h] += [alone] + (
                        [one[3].view(heads, -1)[h] / len(there)] if one else [])
            summaries.append((sum(one[0] for one in there) / len(there),
                              sum(one[1] for one in there) / len(there), torch.cat(received),
                              torch.cat([x for head in by_head for x in head])))
    x = torch.cat(inputs)
    for i in range(2):
        x = F.gelu(x @ p[f"pair.{i}.weight"] + p[f"pair.{i}.bias"][0], approximate="tanh")
    return (x @ p["pair.2.weight"] + p["pair.2.bias"][0])[0], summaries


def score(config, encoding, p, query, index):
    """The logit of candidate `index`, and the attention of each layer."""
    sides = (query["source"], query["candidates"][index])
    windows = [side["window"][:config["window"]] for side in sides]
    peers = [[event["peer"] for event in window] for window in windows]
    own = [read(encoding, s, node_columns(config, encoding, query, sides[s]) +
                pair_columns(config, encoding, query, query["pairs"][index], s, peers[s],
                             peers[1 - s], sides[1 - s]["node"]) +
                longer_columns(config, query, query["between"][index], s)) for s in range(2)]
    if config["architecture"] == "diffdyg":
        return score_joint(config, encoding, p, query, sides, windows, peers, own)
    return score_two_stage(config, encoding, p, query, windows, own)


def forward(config, encoding, p, queries):
    logits, summaries = [], []
    for query in queries:
        for index in range(len(query["candidates"])):
            logit, summary = score(config, encoding, p, query, index)
            logits.append(logit)
            summaries.append(summary)
    return torch.stack(logits), summaries


# ---- files ------------------------------------------------------------------

def write_safetensors(path, tensors, metadata):
    header, offset, data = {"__metadata__": metadata}, 0, []
    for name, array in tensors.items():
        array = numpy.ascontiguousarray(array)
        kind = {"float32": "F32", "float64": "F64"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
        data.append(array.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def side_row(side):
    row = [side["node"], len(side["window"]), side["events"], side["out"], side["in"],
           side["first_time"], side["last_out_time"], side["last_in_time"], side["first_seq"],
           side["last_out_seq"], side["last_in_seq"]]
    for group in side["groups"]:
        row += list(group)
    return row + side["rate_out"] + side["rate_in"]


def query_tensors(index, query):
    sides = [query["source"]] + query["candidates"]
    events = [[e["time"], e["seq"], e["peer"], e["ordinal"], e["weight"], e["out"]] + e["features"]
              for side in sides for e in side["window"]]
    keys = ("count", "last_ordinal", "last_time", "last_seq", "last_weight", "decayed", "flags")
    pairs = [sum((pair[key] for key in keys), []) + [pair["flags_ordinal"]]
             for pair in query["pairs"]]
    name = f"query.{index}."
    return {name + "scalars": numpy.array([[query["time"], query["ordinal"], query["events"],
                                             *query["distinct"]]], float),
            name + "snapshots": numpy.array(query["snapshots"], float),
            name + "sides": numpy.array([side_row(side) for side in sides], float),
            name + "events": numpy.array(events, float),
            name + "pairs": numpy.array(pairs, float),
            name + "between": numpy.array(
                [b["ways"] + b["ways_now"] + [b["shared"], b["shared_recent"]] + b["company"] +
                 b["distinct"] + b["order"] for b in query["between"]], float),
            name + "labels": numpy.array([query["labels"]], float)}


def make(path, config, seed):
    rng = numpy.random.default_rng(seed)
    features = config["features"]
    encoding = {"gap": 7.5, "mean": 0.3, "sd": 1.4, "feature_mean": [0.1] * features,
                "feature_sd": [0.9] * features}
    queries = [draw_query(rng, i, config) for i in range(2)]
    own = len(node_columns(config, encoding, queries[0], queries[0]["source"])) + len(
        pair_columns(config, encoding, queries[0], queries[0]["pairs"][0], 0, [], [], 0)) + len(
        longer_columns(config, queries[0], queries[0]["between"][0], 0))
    as_float = lambda x: x.astype("float32").astype("float64")
    shape = (STEPS, len(stepped()))
    encoding["scaling"] = as_float(numpy.concatenate([rng.normal(size=(1, 2 * own)),
                                                      rng.random((1, 2 * own)) * 8]))
    encoding["steps"] = as_float(numpy.concatenate([rng.normal(size=shape),
                                                    numpy.maximum(0, rng.normal(size=shape))]))
    p = {}
    for name, (rows, columns) in parameter_shapes(config, own).items():
        if name == "time.frequency":
            value = 10.0 ** -numpy.linspace(0, 2, 16)[None, :]
        elif name.endswith("norm"):
            value = 1 + 0.2 * rng.normal(size=(rows, columns))
        else:
            value = rng.normal(size=(rows, columns)) * (0.7 / math.sqrt(rows) if rows > 4 else 0.3)
        p[name] = torch.tensor(as_float(value), requires_grad=True)
    tensors = {"encoding." + key: encoding[key] for key in ("scaling", "steps")}
    for i, query in enumerate(queries):
        tensors.update(query_tensors(i, query))
    as32 = lambda tensor: tensor.detach().numpy().astype("float32")
    tensors.update({"start/" + name: as32(value) for name, value in p.items()})
    labels = torch.tensor(sum((query["labels"] for query in queries), []))
    weight = 1 / len(labels)
    decayed = [v for n, v in p.items() if n.endswith(".weight")]
    others = [v for n, v in p.items() if not n.endswith(".weight")]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01},
                                   {"params": others, "weight_decay": 0.0}], lr=2e-3)
    losses = []
    for step in range(11):
        optimizer.zero_grad()
        logits, summaries = forward(config, encoding, p, queries)
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum") * weight
        losses.append(float(loss))
        if step == 10:
            break
        loss.backward()
        if step == 0:
            tensors["logits"] = logits.detach().numpy()[None, :]
            if config["layers"]:
                tensors["entropy"] = numpy.array([[s[0] for s in pair] for pair in summaries])
                tensors["top5_share"] = numpy.array([[s[1] for s in pair] for pair in summaries])
                received = [torch.cat([s[2] for s in pair]) for pair in summaries]
                tensors["received"] = torch.cat(received).numpy()[None, :]
                by_head = [torch.cat([s[3] for s in pair]) for pair in summaries]
                tensors["received_by_head"] = torch.cat(by_head).numpy()[None, :]
            tensors.update({"gradient/" + name: as32(value.grad) for name, value in p.items()})
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        optimizer.step()
    tensors["losses"] = numpy.array([losses])
    tensors.update({"end/" + name: as32(value) for name, value in p.items()})
    metadata = {key: value if key == "architecture" else str(int(value))
                for key, value in config.items()}
    metadata.update({"gap": str(encoding["gap"]), "mean": str(encoding["mean"]),
                     "sd": str(encoding["sd"]), "seed": str(seed), "torch": torch.__version__})
    write_safetensors(path, tensors, metadata)
    print(f"{path}: {os.path.getsize(path)} bytes, loss {losses[0]:.6f} to {losses[-1]:.6f}")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    config = {"architecture": "diffdyg", "window": 6, "width": 12, "heads": 2, "layers": 2,
              "features": 2, "differential": 1, "rope": 1, "time_encoding": 1, "cooccurrence": 1,
              "pair_memory": 1, "arrival_age": 1, "steps": 1}
    bare = {"features": 0, "differential": 0, "rope": 0, "time_encoding": 0, "cooccurrence": 0,
            "pair_memory": 0, "arrival_age": 0, "steps": 0}
    path = lambda name: os.path.join(folder, name + ".safetensors")
    make(path("diffdyg"), config, 1)
    make(path("diffdyg_softmax"), dict(config, width=8, layers=1, **bare), 2)
    make(path("diffdyg_cached"), dict(config, architecture="diffdyg-cached"), 3)
    make(path("mlp"), dict(config, architecture="mlp", layers=0), 4)
    make(path("mlp_plain"), dict(config, architecture="mlp", layers=0, steps=0), 5)


if __name__ == "__main__":
    main()
