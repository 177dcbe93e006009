#!/usr/bin/python3
"""Reliability: do probabilities mean what they say? A picture (SVG) from the JSON
that `driftline evaluate --json` printed, a curve for each file.

    bench/reliability.py --out docs/reliability.svg NAME=FILE.json ...

Prior: one true edge against one random destination, at even odds. The area of a
mark is the share of the pairs in its bin.
"""
import argparse
import json

COLOURS = ["#1a4f8a", "#b2222d", "#2c7a3f", "#7a4a9c", "#b8860b", "#555555", "#008b8b"]
SIZE, LEFT, TOP = 400, 60, 40


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("reports", nargs="+", metavar="NAME=FILE")
    a = parser.parse_args()
    x_of = lambda p: LEFT + p * SIZE
    y_of = lambda p: TOP + (1 - p) * SIZE
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 500" width="740" '
           f'height="500" role="img"><style>text{{font-family:sans-serif;font-size:12px;fill:#222}}'
           f'.h{{font-size:14px;font-weight:bold}}.e{{text-anchor:end}}.m{{text-anchor:middle}}'
           f'.g{{stroke:#ddd}}</style><rect width="100%" height="100%" fill="#fff"/>'
           f'<text x="{LEFT}" y="24" class="h">Probability said, and how often it came true</text>']
    for i in range(6):
        p = i / 5
        out.append(f'<line class="g" x1="{x_of(0)}" x2="{x_of(1)}" y1="{y_of(p):.1f}" '
                   f'y2="{y_of(p):.1f}"/><line class="g" y1="{y_of(0)}" y2="{y_of(1)}" '
                   f'x1="{x_of(p):.1f}" x2="{x_of(p):.1f}"/><text class="e" x="{LEFT - 8}" '
                   f'y="{y_of(p) + 4:.1f}">{p:g}</text><text class="m" x="{x_of(p):.1f}" '
                   f'y="{TOP + SIZE + 18}">{p:g}</text>')
    out.append(f'<line stroke="#888" stroke-dasharray="4 3" x1="{x_of(0)}" y1="{y_of(0)}" '
               f'x2="{x_of(1)}" y2="{y_of(1)}"/><text class="m" x="{x_of(0.5)}" '
               f'y="{TOP + SIZE + 38}">probability (one true edge against one random destination)'
               f'</text>')
    for k, each in enumerate(a.reports):
        name, _, path = each.partition("=")
        with open(path) as file:
            calibration = json.load(file)["calibration"]
        colour, bins = COLOURS[k % len(COLOURS)], calibration["bins"]
        total = sum(count for _, _, count in bins)
        points = " ".join(f"{x_of(p):.1f},{y_of(f):.1f}" for p, f, _ in bins)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        for p, frequency, count in bins:
            out.append(f'<circle cx="{x_of(p):.1f}" cy="{y_of(frequency):.1f}" '
                       f'r="{2 + 12 * (count / total) ** 0.5:.1f}" fill="{colour}" '
                       f'fill-opacity="0.35"><title>{name}: {p:.3f} said, {frequency:.3f} came '
                       f'true, {count} pairs</title></circle>')
        out.append(f'<rect x="{LEFT + SIZE + 20}" y="{TOP + 24 * k}" width="12" height="12" '
                   f'fill="{colour}"/><text x="{LEFT + SIZE + 38}" y="{TOP + 11 + 24 * k}">{name}, '
                   f'error {calibration["ece"]:.3f}</text>')
    with open(a.out, "w") as file:
        file.write("\n".join(out) + "\n</svg>\n")


main()
