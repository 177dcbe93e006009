#!/usr/bin/python3
"""Shift against accuracy, over data sets and spans: for each data set a model is
trained on its training span (to the 70 % quantile of the times, strict ties),
and what follows is cut into pieces. For each piece: MMD² of its events from
those of the training span, the p-value, the feature that moved most, and the
model's average precision on it. Writes a table (Markdown) and a picture (SVG).

    bench/shift.py --driftline build/driftline --data FOLDER --out docs
"""
import argparse
import json
import subprocess
from pathlib import Path

# name, file, time unit; models are trained and measured under strict ties.
SETS = [("UCI", "uci.csv.gz", "s"), ("Can. Parl.", "canparl.csv.gz", "ticks"),
        ("US Legis.", "uslegis.csv.gz", "ticks"), ("UN Vote", "unvote.csv.gz", "ticks")]
FIRST, PIECES, PERMUTATIONS, EPOCHS = 0.70, 6, 199, 4
COLOURS = ["#555555", "#1a4f8a", "#b2222d", "#2c7a3f", "#7a4a9c"]


def run(*arguments):
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}:\n{done.stderr[-2000:]}")
    return done.stdout


def measure(driftline, path, unit, work):
    model = work / (path.name.split(".")[0] + ".safetensors")
    if not model.exists():
        run(driftline, "train", path, "--time-unit", unit, "--ties", "strict", "--epochs", EPOCHS,
            "--out", model)
    rows = []
    step = (1 - FIRST) / PIECES
    for k in range(PIECES):
        after = (FIRST + k * step, min(1, FIRST + (k + 1) * step))
        rows.append((after, json.loads(run(
            driftline, "drift", path, "--time-unit", unit, "--before", f"0:{FIRST}", "--after",
            f"{after[0]:.4f}:{after[1]:.4f}", "--permutations", PERMUTATIONS, "--model", model,
            "--json"))))
    return rows


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in order[at:end + 1]:
            out[i] = (at + end) / 2
        at = end + 1
    return out


def correlation(x, y):
    """Spearman's."""
    x, y = ranks(x), ranks(y)
    mx, my = sum(x) / len(x), sum(y) / len(y)
    sxy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    sxx, syy = sum((a - mx) ** 2 for a in x), sum((b - my) ** 2 for b in y)
    return sxy / (sxx * syy) ** 0.5 if sxx and syy else float("nan")


def marker(shape, x, y, colour):
    style = f'fill="none" stroke="{colour}" stroke-width="2"'
    if shape == 4:
        return f'<path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" {style}/>'
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {style}/>'
    if shape == 1:
        return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {style}/>'
    if shape == 2:
        return f'<path d="M{x:.1f} {y - 6:.1f}l6 11h-12z" {style}/>'
    return f'<path d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7-7z" {style}/>'


def ticks(low, high):
    step = 10 ** len(str(int(high * 1e6 / 5))) / 1e6 / 10
    while (high - low) / step > 8:
        step *= 2
    first = int(low / step) * step
    return [round(first + k * step, 6) for k in range(20) if low <= first + k * step <= high]


def picture(results):
    width, height, left, top, right, bottom = 760, 460, 64, 56, 24, 56
    xs = [r["mmd2"] for _, rows in results for _, r in rows]
    ys = [r["model"]["ap"] for _, rows in results for _, r in rows]
    x_high, y_low = max(xs) * 1.05, min(ys) - 0.03
    x_of = lambda v: left + max(0, v) / x_high * (width - left - right)
    y_of = lambda v: top + (1 - v) / (1 - y_low) * (height - top - bottom)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'height="{height}" role="img"><style>text{{font-family:sans-serif;font-size:12px;'
           f'fill:#222}}.h{{font-size:14px;font-weight:bold}}.e{{text-anchor:end}}.m{{text-anchor:'
           f'middle}}.g{{stroke:#ddd}}</style><rect width="100%" height="100%" fill="#fff"/>',
           f'<text x="{left}" y="24" class="h">Shift against accuracy: pieces of what follows the '
           f'training span</text>']
    for value in ticks(y_low, 1.0):
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y_of(value):.1f}" '
                   f'y2="{y_of(value):.1f}" class="g"/><text x="{left - 8}" '
                   f'y="{y_of(value) + 4:.1f}" class="e">{value:g}</text>')
    for value in ticks(0, x_high):
        out.append(f'<line y1="{top}" y2="{height - bottom}" x1="{x_of(value):.1f}" '
                   f'x2="{x_of(value):.1f}" class="g"/><text x="{x_of(value):.1f}" '
                   f'y="{height - bottom + 18}" class="m">{value:g}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 14}" class="m">MMD² from the '
               f'training span</text><text transform="translate(18 {(top + height - bottom) / 2}) '
               f'rotate(-90)" class="m">average precision</text>')
    for shape, (name, rows) in enumerate(results):
        colour = COLOURS[shape]
        points = [(x_of(r["mmd2"]), y_of(r["model"]["ap"])) for _, r in rows]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-opacity="0.35"/>')
        for (x, y), (after, r) in zip(points, rows):
            out.append(f'<g><title>{name}, {after[0]:.0%} to {after[1]:.0%}: MMD² '
                       f'{r["mmd2"]:.4f}, AP {r["model"]["ap"]:.3f}</title>'
                       f'{marker(shape, x, y, colour)}</g>')
        x = left + 8 + shape * 125
        out.append(f'{marker(shape, x, 41, colour)}<text x="{x + 12}" y="45">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def table(results):
    lines = ["| data set | events | MMD² | p | moved most | AP | AP of validation |",
             "|---|---|---|---|---|---|---|"]
    for name, rows in results:
        for after, r in rows:
            lines.append(
                f"| {name} | {after[0]:.0%} to {after[1]:.0%} | {r['mmd2']:.4f} | "
                f"{r['p_value']:.3f} | {r['features'][0]['name']} | {r['model']['ap']:.4f} | "
                f"{r['model']['validation_ap']:.4f} |")
    lines.append("")
    inside = [(name, correlation([r["mmd2"] for _, r in rows],
                                 [r["model"]["ap"] for _, r in rows])) for name, rows in results]
    every = [(r["mmd2"], r["model"]["ap"]) for _, rows in results for _, r in rows]
    lines.append("Rank correlation of MMD² and AP: " +
                 ", ".join(f"{name} {value:+.2f}" for name, value in inside) +
                 f"; over all pieces {correlation(*zip(*every)):+.2f}.")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driftline", required=True)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path, help="where models are kept")
    parser.add_argument("--out", required=True, type=Path,
                        help="folder of DRIFT.md, whose table is replaced, and shift.svg")
    a = parser.parse_args()
    a.work.mkdir(parents=True, exist_ok=True)
    results = []
    # The control: at 85 % of it, everybody's partners change.
    simulated = a.work / "simulated.csv"
    run(a.driftline, "simulate", "--out", simulated, "--events", 40000, "--shift",
        "partners@34000")
    results.append(("Simulated", measure(a.driftline, simulated, "ms", a.work)))
    for name, file, unit in SETS:
        if not (a.data / file).exists():
            print(f"{name}: no {file} in {a.data}, left out")
            continue
        results.append((name, measure(a.driftline, a.data / file, unit, a.work)))
        print(f"{name}: done", flush=True)
    text = table(results)
    print(text)
    document = a.out / "DRIFT.md"
    begin, end = "<!-- shift -->", "<!-- /shift -->"
    old = document.read_text()
    head, rest = old.split(begin)
    document.write_text(head + begin + "\n" + text + "\n" + end + rest.split(end)[1])
    (a.out / "shift.svg").write_text(picture(results))


main()
