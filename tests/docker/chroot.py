#!/usr/bin/python3
"""Runs the steps of docker/Dockerfile without Docker: each stage in a chroot made
by debootstrap, so that the packages named there are proven to be enough, to build
and to run. Needs root and Debian's debootstrap, and takes some minutes.

    tests/docker/chroot.py [--work FOLDER] [--mirror URL] [--keep]
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def mirror_of_this_machine():
    for path in [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]:
        if path.exists():
            for url in re.findall(r"https?://\S+?/debian/?(?=\s)", path.read_text()):
                return url
    return "http://deb.debian.org/debian"


def instructions(text):
    """(WORD, rest) with continued lines joined and comments left out."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, re.sub(r"\s+", " ", rest)


class Stage:
    def __init__(self, base, folder, mirror):
        image, tag = base.split(":")
        assert image == "debian", f"FROM {base}: only Debian is known here"
        self.root, self.workdir, self.user = folder, "/", None
        if not (folder / "etc/debian_version").exists():
            print(f"== debootstrap {tag.split('-')[0]} into {folder}", flush=True)
            subprocess.run(["debootstrap", "--variant=minbase", tag.split("-")[0], folder, mirror],
                           check=True, stdout=subprocess.DEVNULL)
        for name in ("etc/resolv.conf", "etc/hosts"):
            shutil.copy(pathlib.Path("/") / name, folder / name)
        for source in pathlib.Path("/etc/apt/apt.conf.d").glob("*proxy*"):
            shutil.copy(source, folder / "etc/apt/apt.conf.d")
        subprocess.run(["mount", "-t", "proc", "proc", folder / "proc"], check=True)

    def close(self):
        subprocess.run(["umount", self.root / "proc"])

    def run(self, command, **more):
        print(f"== {command}", flush=True)
        who = ["--userspec", f"{self.user}:{self.user}"] if self.user else []
        return subprocess.run(["chroot", *who, self.root, "/bin/sh", "-ec",
                               f"cd {self.workdir} && {command}"], check=True,
                              env={**os.environ, "HOME": self.workdir, "DEBIAN_FRONTEND": "noninteractive",
                                   "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                              **more)

    def path(self, inside):
        return self.root / str(pathlib.PurePosixPath(self.workdir) / inside).lstrip("/")

    def copy(self, rest, stages):
        *flags, source, target = rest.split()
        origin = [flag.partition("=")[2] for flag in flags if flag.startswith("--from=")]
        if origin:
            shutil.copy2(stages[origin[0]].path(source), self.path(target))
            return
        assert (source, target) == (".", "."), f"COPY {rest}"
        files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True).stdout
        packed = subprocess.run(["tar", "--null", "-T", "-", "-c"], input=files, check=True, cwd=ROOT,
                                capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", self.path(".")], input=packed, check=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/driftline-chroot"))
    arguments.add_argument("--mirror", default=mirror_of_this_machine())
    arguments.add_argument("--keep", action="store_true", help="leave the chroots in place")
    a = arguments.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("tests/docker/chroot.py: needs root and debootstrap (apt-get install debootstrap)")
    stages, stage, start = {}, None, {}
    a.work.mkdir(parents=True, exist_ok=True)
    try:
        for word, rest in instructions((ROOT / "docker/Dockerfile").read_text()):
            if word == "FROM":
                base, _, name = rest.partition(" AS ")
                name = name or "final"
                stage = stages[name] = Stage(base, a.work / name, a.mirror)
            elif word == "RUN":
                stage.run(rest)
            elif word == "WORKDIR":
                stage.workdir = rest
                stage.path(".").mkdir(parents=True, exist_ok=True)
            elif word == "COPY":
                stage.copy(rest, stages)
            elif word == "USER":
                stage.user = rest
            elif word in ("ENTRYPOINT", "CMD"):
                start[word] = shlex.join(json.loads(rest))
            elif word not in ("VOLUME", "EXPOSE", "STOPSIGNAL"):
                sys.exit(f"tests/docker/chroot.py: {word} is not known here")
        # It runs, as its user, with what the second stage holds and no more.
        stage.run(f"{start['ENTRYPOINT']} --version")
        stage.run(f"ldd $(command -v {start['ENTRYPOINT']}) | grep 'not found' && exit 1 || true")
        stage.run(f"{start['ENTRYPOINT']} demo --seconds 5 --shift none --json --http "
                  "127.0.0.1:0 --rpc 127.0.0.1:0", timeout=300)
        print("docker: every step of docker/Dockerfile ran, and so does the program")
    finally:
        for one in stages.values():
            one.close()
        if not a.keep:
            shutil.rmtree(a.work, ignore_errors=True)


if __name__ == "__main__":
    main()
