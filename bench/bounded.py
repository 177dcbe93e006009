#!/usr/bin/python3
"""Memory and file sizes of a service with bounds while a long feed goes through it.

    bench/bounded.py --driftline build/driftline --events 24000000 --out docs

`driftline simulate` writes into the standard input of `driftline serve` (no model:
windows, log, checkpoints), whose metrics are read about once a second. The
population is fixed (the simulator's newcomers take the names of those before them),
as each new node costs memory up to store.nodes_max. The store's log is shorter than
the feed, so that it is cut and its space used again; windows drop what is too old;
pairs are forgotten. Writes bounded.csv and bounded.svg, and one line: memory and
file of the last quarter of the feed against the second.
"""
import argparse
import csv
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

SETTINGS = {"source.kind": "stdin", "source.encoding": "csv", "source.time_unit": "ms",
            "store.window": 32, "store.nodes_max": "100k", "store.pairs_max": "262144",
            "store.log_events_max": "2M", "store.age_max": "30d", "predict.batch_events": 8192}
LEVEL = 1.02  # what counts as level


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def metrics(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in
            (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}


def sample(m, began):
    return {"seconds": round(time.monotonic() - began, 1),
            "events": int(m["driftline_events_total"]),
            "resident_mib": m["process_resident_memory_bytes"] / 2 ** 20,
            "database_mib": m['driftline_store_bytes{file="database"}'] / 2 ** 20,
            "wal_mib": m['driftline_store_bytes{file="wal"}'] / 2 ** 20,
            "pairs": int(m["driftline_graph_pairs"])}


def run(driftline, events, nodes, work):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    feed = subprocess.Popen([driftline, "simulate", "--events", str(events), "--nodes", str(nodes),
                             "--events-per-day", "200000"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
    names = (f'NR > 1 {{ for (i = 1; i < 3; i++) $i = "n" substr($i, 2) % {nodes} }} {{ print }}')
    fixed = subprocess.Popen(["awk", "-F,", "-vOFS=,", names], stdin=feed.stdout,
                             stdout=subprocess.PIPE)
    feed.stdout.close()
    flags = [w for key, value in SETTINGS.items() for w in ("--set", f"{key}={value}")]
    with open(work / "log", "wb") as log:
        service = subprocess.Popen([driftline, "serve", *flags, "--store", str(work / "s.db"),
                                    "--rpc", "off", "--http", address], stdin=fixed.stdout,
                                   stdout=log, stderr=log)
    fixed.stdout.close()
    began, rows = time.monotonic(), []
    try:
        while not rows or rows[-1]["events"] < events:
            time.sleep(1)
            if service.poll() is not None:
                raise SystemExit((work / "log").read_text()[-2000:])
            try:
                rows.append(sample(metrics(address), began))
            except (OSError, KeyError):
                continue
        service.send_signal(signal.SIGTERM)
        if service.wait(60):
            raise SystemExit((work / "log").read_text()[-2000:])
    finally:
        service.kill()
        feed.kill()
    checked = subprocess.run([driftline, "check", "--store", str(work / "s.db")],
                             capture_output=True, text=True)
    print(checked.stdout.strip())
    if checked.returncode:
        raise SystemExit("the store does not check")
    return rows


def path_of(points):
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def panel(rows, top, title, lines):
    """Lines of (column, label, colour) over the events, from 0."""
    left, width, height = 60, 560, 150
    most = max(row[column] for row in rows for column, _, _ in lines) * 1.15
    end = rows[-1]["events"]
    out = [f'<text x="{left}" y="{top - 8}" class="title">{title}</text>',
           f'<rect x="{left}" y="{top}" width="{width}" height="{height}" class="frame"/>']
    step = next(s for s in (10, 20, 50, 100, 200, 500, 1000, 2000) if most / s < 6)
    for value in range(0, int(most) + 1, step):
        y = top + height - height * value / most
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
                   f'<text x="{left - 6}" y="{y + 4:.1f}" class="end">{value}</text>')
    for n in range(5):
        x = left + width * n / 4
        out.append(f'<text x="{x:.1f}" y="{top + height + 16}" class="middle">'
                   f'{end * n / 4e6:.0f} M</text>')
    for at, (column, label, colour) in enumerate(lines):
        points = [(left + width * r["events"] / end, top + height - height * r[column] / most)
                  for r in rows]
        out.append(f'<path d="{path_of(points)}" stroke="{colour}" fill="none" stroke-width="2"/>'
                   f'<text x="{left + width + 10}" y="{top + 16 + 18 * at}" fill="{colour}">'
                   f'{label}</text>')
    return "".join(out)


def draw(rows, path):
    style = ("text{font:13px sans-serif}.title{font-weight:bold}.end{text-anchor:end;fill:#555}"
             ".middle{text-anchor:middle;fill:#555}.grid{stroke:#ddd}.frame{fill:none;stroke:#999}")
    body = panel(rows, 40, "Memory, MiB", [("resident_mib", "resident", "#1a4f8a")])
    body += panel(rows, 250, "Files, MiB", [("database_mib", "database", "#b2222d"),
                                            ("wal_mib", "WAL", "#7a4a9c")])
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="730" height="440" '
                    f'viewBox="0 0 730 440"><style>{style}</style>'
                    f'<rect width="730" height="440" fill="white"/>{body}'
                    f'<text x="340" y="434" class="middle">events taken in</text></svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driftline", required=True)
    parser.add_argument("--events", type=int, default=24000000)
    parser.add_argument("--nodes", type=int, default=100000)
    parser.add_argument("--work", type=Path, default=Path("build/bench/bounded"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = run(str(Path(args.driftline).resolve()), args.events, args.nodes, args.work)
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "bounded.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.1f}" if isinstance(v, float) else v for k, v in r.items()}
                         for r in rows)
    draw(rows, args.out / "bounded.svg")

    def most(column, low, high):
        return max(r[column] for r in rows if low * args.events <= r["events"] <= high * args.events)

    memory = most("resident_mib", 0.75, 1) / most("resident_mib", 0.25, 0.5)
    database = most("database_mib", 0.75, 1) / most("database_mib", 0.25, 0.5)
    wal = most("wal_mib", 0, 1)
    print(f"bounded: over {args.events} events, the last quarter against the second: memory "
          f"x{memory:.3f} ({most('resident_mib', 0.75, 1):.0f} MiB), database x{database:.3f} "
          f"({most('database_mib', 0.75, 1):.0f} MiB), WAL at most {wal:.0f} MiB "
          f"(level: at most x{LEVEL})")
    if memory > LEVEL or database > LEVEL:
        raise SystemExit("not level")


if __name__ == "__main__":
    main()
