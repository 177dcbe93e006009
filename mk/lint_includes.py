#!/usr/bin/python3
"""Checks who may include whom, and which files may name a third-party header.

base includes nothing of ours; proto, store and model include base and
themselves; service includes all; nothing but tests includes service.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    "base": {"base"},
    "proto": {"proto", "base"},
    "store": {"store", "base"},
    "model": {"model", "base"},
    "service": {"service", "proto", "store", "model", "base"},
}
# Header (as a pattern) -> the files that may include it: a library stays behind
# the few that are named for it.
THIRD_PARTY = {
    r"sqlite3\.h": r"store/.*",
    r".*\.pb-c\.h|protobuf-c/.*": r"proto/.*\.c",
    # demo has a broker of its own, replay a producer of its own
    r"librdkafka/.*": r"service/kafka_.*",
    r"nghttp2/.*": r"service/h2[a-z_0-9]*\.(c|h)",
    r"microhttpd\.h": r"service/http.*|tests/fuzz/http_request\.c",
    r"gnutls/.*": r"service/http_tls\.c",
    r"yaml\.h": r"service/config_yaml\.c",
    r"yajl/.*": r"(proto|service)/[a-z_0-9]*json[a-z_0-9]*\.c|model/safetensors.*\.c",
    r"openssl/.*": r"service/tls[a-z_0-9]*\.c|base/digest\.c",
    r"curl/.*": r"service/notify\.c",
    r"criterion/.*": r"tests/.*",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def check(path, problems):
    module = path.parts[0]
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        target = name.split("/")[0]
        place = f"{path}:{number}: "
        generated = re.fullmatch(r".*\.(pb-c\.h|inc)", name)
        if target in MODULES and "/" in name and not generated:
            allowed = MODULES.get(module)
            if allowed is not None and target not in allowed:
                problems.append(f"{place}{module} may not include {name}: only "
                                f"{', '.join(sorted(allowed))}")
            if kind == "<":
                problems.append(f'{place}include our own headers with "{name}"')
        elif kind == '"' and module in MODULES and not generated:
            problems.append(f'{place}name the folder: "{module}/{name}"')
        if module in ("tests", "bench"):
            continue
        for header, files in THIRD_PARTY.items():
            if re.fullmatch(header, name) and not re.fullmatch(files, str(path)):
                problems.append(f"{place}{name} belongs in {files} alone")


def main():
    problems = []
    for folder in [*MODULES, "tests", "bench"]:
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            check(path.relative_to(ROOT), problems)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
