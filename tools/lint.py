#!/usr/bin/env python3
"""Runs clang-tidy on every production source of the release build.

The release build joins the sources of a folder in a few files ("unity"), and so does this: headers
are parsed once for several sources. Tests are left out; they are compiled with all warnings.
Prints each finding once and exits 1 if there is one.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG_TIDY = ROOT / "build/venv/bin/clang-tidy"
QUICK = "--checks=-clang-analyzer-*"
# GCC's options that clang does not know, and a precompiled header of GCC.
CLANG_ARGS = [f"--extra-arg=-Wno-{warning}" for warning in
              ("unknown-warning-option", "unused-command-line-argument", "ignored-gch",
               "deprecated-declarations", "string-conversion")]
FINDING = re.compile(r"^\S+:\d+:\d+: (error|warning): ")


def sources(build):
    """Production files in the compilation database: no tests, no generated code, no CUDA."""
    database = json.loads((build / "compile_commands.json").read_text())
    skipped = re.compile(r"_test|/tests/|/bench/|sluice_test|test_|cmake_pch|device_code|\.cu$")
    files = {entry["file"] for entry in database}
    return sorted(f for f in files if not skipped.search(f.removeprefix(str(ROOT))))


def findings(build, checks, source):
    """The lines of clang-tidy about one file; never silent if it failed."""
    command = [str(CLANG_TIDY), "-p", str(build), "--quiet", *CLANG_ARGS, source]
    if checks == "quick":
        command.insert(1, QUICK)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return done.stdout.splitlines() or [f"{source}:1:1: error: {done.stderr.strip()}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    parser.add_argument("--jobs", default=2, type=int)
    parser.add_argument("--checks", default="all", choices=["all", "quick"])
    args = parser.parse_args()
    begin = time.monotonic()
    files = sources(args.build)
    if not files:
        sys.exit(f"lint: {args.build}/compile_commands.json names no source")
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for lines in pool.map(lambda f: findings(args.build, args.checks, f), files):
            shown = True  # also the lines that explain a finding
            for line in lines:
                if FINDING.match(line):
                    shown = line not in seen
                    seen.add(line)
                if shown:
                    print(line.replace(f"{ROOT}/", ""))
    print(f"lint: {len(files)} files, {len(seen)} findings, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if seen else 0)


if __name__ == "__main__":
    main()
