#!/usr/bin/python3
"""Runs Criterion programs and pytest files and adds their results up.

    tests/run.py --out FOLDER --criterion PROGRAM... --pytest FILE...

The last line is "N passed, N failed, N skipped". A program that dies without a
report counts as one failure. FOLDER keeps the reports. Arguments for the
Criterion programs come from TEST_ARGS, for pytest from PYTEST_ARGS.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, passed, failed, skipped):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def criterion(program, folder, tally):
    report = folder / (Path(program).name + ".json")
    report.unlink(missing_ok=True)
    print(f"== {program}", flush=True)
    arguments = shlex.split(os.environ.get("TEST_ARGS", "--timeout 600"))
    code = subprocess.run([program, f"--json={report}", *arguments], check=False).returncode
    try:
        text = report.read_text(errors="replace")
        # Criterion does not escape messages, so only its counts are sure to be readable.
        counts = {name: int(re.search(rf'"{name}":\s*(\d+)', text)[1])
                  for name in ("passed", "failed", "errored", "skipped")}
        failed = counts["failed"] + counts["errored"]
        tally.add(counts["passed"], failed if failed or code == 0 else 1, counts["skipped"])
    except (OSError, TypeError):
        print(f"{program} ended with {code} and left no report")
        tally.add(0, 1, 0)
        return
    try:
        for suite in json.loads(text, strict=False)["test_suites"]:
            for test in suite["tests"]:
                if test["status"] == "SKIPPED":
                    why = "; ".join(test.get("messages", [])).strip()
                    print(f"skipped: {suite['name']}: {test['name']}{why and ': '}{why}")
    except (ValueError, KeyError):
        pass


def pytest(files, folder, tally):
    report = folder / "pytest.xml"
    report.unlink(missing_ok=True)
    print("== pytest", flush=True)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "tests/pytest.ini", "--rootdir=tests",
         f"--junitxml={report}", *shlex.split(os.environ.get("PYTEST_ARGS", "")), *files],
        check=False).returncode
    try:
        suite = xml.parse(report).getroot().find("testsuite")
        total, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        tally.add(total - skipped - failed, failed if failed or code == 0 else 1, skipped)
    except (OSError, xml.ParseError, AttributeError, TypeError, ValueError):
        print(f"pytest ended with {code} and left no report")
        tally.add(0, 1, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--criterion", nargs="*", default=[])
    parser.add_argument("--pytest", nargs="*", default=[])
    args = parser.parse_args()
    if not args.criterion and not args.pytest:
        print("there is nothing to run")
        sys.exit(1)
    folder = Path(args.out)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tally = Tally()
    for program in args.criterion:
        criterion(program, folder, tally)
    if args.pytest:
        pytest(args.pytest, folder, tally)
    (folder / "counts").write_text(f"{tally.passed} {tally.failed} {tally.skipped}\n")
    print(tally, flush=True)
    sys.exit(1 if tally.failed or not tally.passed else 0)


if __name__ == "__main__":
    main()
