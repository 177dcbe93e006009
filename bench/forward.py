#!/usr/bin/env python3
"""The whole model beside PyTorch: same weights, same pairs, one core.

    make bench-forward      scoring
    make bench-train        training

PyTorch gets the input columns ready-made (ours builds them from the query) and
full windows, so that it needs no masks; its batch is what suits it best of
several. Both are timed in processor time, in turn, the best of all rounds.
"""
import json
import math
import struct
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
TARGETS = {"forward": {(8, 32): 8, (32, 64): 3.5}, "train": {(8, 32): 4, (32, 64): 4}}


def read_safetensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(numpy.frombuffer(
        data[8 + size:][slice(*entry["data_offsets"])], "float32").reshape(entry["shape"]).copy())
        for name, entry in header.items()}


def rms(x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


class Model:
    """Batched differential attention over P pairs of n = 2(W + 1) tokens."""

    def __init__(self, tensors, window, heads=2, layers=2):
        self.p = {k: v for k, v in tensors.items() if not k.startswith(("in.", "out."))}
        self.heads, self.layers, self.window = heads, layers, window
        d = self.p["side"].shape[1]
        half = d // heads // 2
        angle = torch.arange(window + 1.)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        angle = torch.cat([angle, angle])
        self.cos, self.sin = angle.cos(), angle.sin()

    def turn(self, x):
        low, high = x.chunk(2, -1)
        return torch.cat([low * self.cos - high * self.sin, high * self.cos + low * self.sin], -1)

    def embed(self, token, self_token, elapsed, seen):
        p, w = self.p, self.window
        pairs = token.shape[0]
        scalars = token[..., :7]
        waves = torch.cos(elapsed * p["time.frequency"] + p["time.phase"])
        hidden = F.relu(torch.log1p(seen)[..., None] * p["cooccurrence.0.weight"] +
                        p["cooccurrence.0.bias"])
        counts = (hidden @ p["cooccurrence.1.weight"] + p["cooccurrence.1.bias"]).sum(-2)
        x = torch.cat([scalars, waves, counts], -1) @ p["token.weight"] + p["token.bias"]
        own = self_token @ p["self.weight"] + p["self.bias"]
        d = x.shape[-1]
        x = torch.cat([own[:, :, None], x.view(pairs, 2, w, d)], 2) + p["side"][None, :, None]
        return x.view(pairs, 2 * (w + 1), d)

    def attend(self, l, x, dropout):
        p, heads = self.p, self.heads
        pairs, n, d = x.shape
        width, start = d // heads, 0.8 - 0.6 * math.exp(-0.3 * l)
        q, k, v = (rms(x) * p[f"layer.{l}.attention_norm"] @ p[f"layer.{l}.qkv.weight"]).split(
            [2 * d, 2 * d, d], -1)
        q, k = (self.turn(t.view(pairs, n, 2 * heads, width).transpose(1, 2)) for t in (q, k))
        v = v.view(pairs, n, heads, width).transpose(1, 2)
        maps = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width), -1)
        a, b, c, e = p[f"layer.{l}.lambda"]
        scale = torch.exp(a @ b) - torch.exp(c @ e) + start
        out = rms((maps[:, :heads] - scale * maps[:, heads:]) @ v) * (1 - start)
        out = out.transpose(1, 2).reshape(pairs, n, d) @ p[f"layer.{l}.output.weight"]
        return x + (F.dropout(out, 0.1) if dropout else out)

    def mlp(self, l, x, dropout):
        p = self.p
        hidden = rms(x) * p[f"layer.{l}.mlp_norm"] @ p[f"layer.{l}.mlp.0.weight"]
        hidden = F.gelu(hidden + p[f"layer.{l}.mlp.0.bias"], approximate="tanh")
        out = hidden @ p[f"layer.{l}.mlp.1.weight"] + p[f"layer.{l}.mlp.1.bias"]
        return x + (F.dropout(out, 0.1) if dropout else out)

    def __call__(self, inputs, dropout=False):
        p, x = self.p, self.embed(*inputs)
        for l in range(self.layers):
            x = self.mlp(l, self.attend(l, x, dropout), dropout)
        x = (rms(x) * p["final_norm"]).view(x.shape[0], 2, self.window + 1, -1).mean(2)
        hidden = F.gelu(x.flatten(1) @ p["head.0.weight"] + p["head.0.bias"], approximate="tanh")
        return (hidden @ p["head.1.weight"] + p["head.1.bias"])[:, 0]


def inputs_of(tensors, window, pairs):
    have = tensors["out.logits"].shape[0]
    take = torch.arange(pairs) % have
    token = tensors["in.token"].view(have, 2 * window, -1)[take]
    return (token, tensors["in.self"].view(have, 2, -1)[take],
            tensors["in.elapsed"].view(have, 2 * window, 1)[take],
            tensors["in.seen"].view(have, 2 * window, 2)[take])


def score_rate(model, inputs):
    with torch.no_grad():
        start = time.thread_time()
        model(inputs)
        return len(inputs[0]) / (time.thread_time() - start)


def train_rate(model, inputs, optimizer):
    labels = torch.arange(len(inputs[0])) % 2 * 1.0
    start = time.thread_time()
    optimizer.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(inputs, True), labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(model.p.values()), 1.0)
    optimizer.step()
    return len(inputs[0]) / (time.thread_time() - start)


def compare(program, what, window, width, rounds):
    ours, theirs, peak = 0, 0, 0
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        subprocess.run([program, str(window), str(width), "0", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        tensors = read_safetensors(file.name)
    model = Model(tensors, window)
    with torch.no_grad():
        off = (model(inputs_of(tensors, window, 50)) - tensors["out.logits"][:, 0]).abs().max()
    assert off < 1e-4, f"logits differ by {off}"
    batches = [inputs_of(tensors, window, n) for n in ((100,) if what == "train" else (50, 100, 200))]
    if what == "train":
        for value in model.p.values():
            value.requires_grad_(True)
        optimizer = torch.optim.AdamW(model.p.values(), lr=1e-3, weight_decay=0.01)
    for _ in range(rounds):
        line = json.loads(subprocess.run([program, str(window), str(width), "0.5"], check=True,
                                         stdout=subprocess.PIPE).stdout)
        ours, peak = max(ours, line["score" if what == "forward" else "train"]), max(peak, line["peak"])
        for batch in batches:
            for _ in range(4):
                rate = score_rate(model, batch) if what == "forward" else train_rate(
                    model, batch, optimizer)
                theirs = max(theirs, rate)
    share = ours * line["flops"] * (1 if what == "forward" else 3) / peak
    print(f"W {window}, d {width}: {ours:.0f} pairs/s ({share:.2f} of the {peak / 1e9:.0f} GFLOP/s "
          f"peak), PyTorch {torch.__version__} {theirs:.0f} pairs/s, ratio {ours / theirs:.1f}; "
          f"tier {line['tier']}, logits agree to {off:.1e}", flush=True)
    return ours, theirs, share


def main():
    what, program, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 6
    results = {shape: compare(program, what, *shape, rounds) for shape in TARGETS[what]}
    figures, targets, rivals = [], [], []
    for (window, width), (ours, theirs, share) in results.items():
        figures.append(f"{ours / theirs:.1f} x PyTorch and {share:.2f} of peak at W {window} d {width}")
        targets.append(f"{TARGETS[what][window, width]} x" + (" and 0.70" if what == "forward" else ""))
        rivals.append(f"{theirs:.0f}")
    print(f"{what}: {'; '.join(figures)} (target {'; '.join(targets)}; "
          f"PyTorch {' and '.join(rivals)} pairs/s)")


if __name__ == "__main__":
    main()
