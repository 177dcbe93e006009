#!/usr/bin/python3
"""Writes the tables of docs/OPERATIONS.md that the program itself knows: the
configuration keys and the metrics. With --check it only says whether they are
as they would be written (exit code 1: they are not).

    mk/docs.py PROGRAM [--check]
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "OPERATIONS.md"


def keys(program):
    return subprocess.run([program, "check", "--markdown"], capture_output=True, text=True,
                          check=True).stdout.strip()


def metrics():
    """From the rows of service/metric_table.c: ROW(field, "name", "help", KIND, options...)."""
    text = (ROOT / "service" / "metric_table.c").read_text()
    shared = dict(re.findall(r'#define (\w+) (BY\(.*)', text))
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    rows = re.findall(r'ROW\((\w+), "([^"]+)",\s*"([^"]+)",\s*(.*)\),\n', text)
    for _, name, meaning, rest in rows:
        kind = re.match(r"[A-Z]+", rest)[0].lower()
        labels = re.search(r"BY\(([^)]*)\)", rest)
        for macro, expansion in shared.items():
            if re.search(rf"\b{macro}\b", rest):
                labels = re.search(r"BY\(([^)]*)\)", expansion)
        names = ", ".join(f"`{n}`" for n in re.findall(r'"(\w+)"', labels[1])) if labels else ""
        lines.append(f"| `{name}` | {'gauge' if kind == 'info' else kind} | {names} | {meaning} |")
    assert len(rows) == len(re.findall(r"^    ROW\(", text, re.M)), "a row is not understood"
    return "\n".join(lines)


def main():
    program, check = sys.argv[1], "--check" in sys.argv[2:]
    page = PAGE.read_text()
    written = page
    for name, table in (("keys", keys(program)), ("metrics", metrics())):
        written, found = re.subn(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)",
                                 lambda m, t=table: m[1] + t + m[2], written, flags=re.S)
        assert found == 1, f"docs/OPERATIONS.md has no place for {name}"
    if check:
        if written != page:
            print("docs/OPERATIONS.md has old tables; make docs writes them again")
        sys.exit(0 if written == page else 1)
    PAGE.write_text(written)


if __name__ == "__main__":
    main()
