#!/usr/bin/env python3
"""Checks the SPIN models of this folder: each holds, and fails when one of its rules is left out.

For ctest: exit status 77, which ctest shows as skipped, without spin or a C compiler.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
SAFETY = (["-DSAFETY"], [])
LIVENESS = (["-DNFAIR=3"], ["-a", "-f"])  # under weak fairness
ONE = ["-DBORROWERS=1", "-DFAULTS=2"]
TWO = ["-DBORROWERS=2", "-DFAULTS=1", "-DUNITS=1", "-DALLOCATIONS=1"]
# Model, macros, kind of check, and the violation that is expected; None: there is none.
CASES = [
    ("reclaim", ONE, SAFETY, None),
    ("reclaim", [*ONE, "-DCOPIES=2"], SAFETY, None),
    ("reclaim", TWO, SAFETY, None),
    ("reclaim", ["-DBORROWERS=1", "-DFAULTS=1", "-DLIVENESS"], LIVENESS, None),
    ("reclaim", [*TWO, "-DCOPIES=0", "-DLIVENESS"], LIVENESS, None),
    ("reclaim", [*ONE, "-DWITHOUT_QUIET_RETURN"], SAFETY, "assertion"),
    ("reclaim", [*ONE, "-DWITHOUT_EPOCHS"], SAFETY, "assertion"),
    ("reclaim", [*ONE, "-DWITHOUT_KEYS"], SAFETY, "assertion"),
    ("reclaim", [*ONE, "-DWITHOUT_UNMAPPING"], SAFETY, "assertion"),
    ("reclaim", [*ONE, "-DWITHOUT_NEW_JOIN"], SAFETY, "assertion"),
    ("reclaim", [*ONE, "-DEXPIRES_EARLY"], SAFETY, "assertion"),
    ("reclaim", [*TWO, "-DWITHOUT_QUIET_TIME"], SAFETY, "assertion"),
    ("reclaim", [*ONE, "-DLIVENESS", "-DWITHOUT_EXPIRY"], LIVENESS, "acceptance cycle"),
    ("pages", [], SAFETY, None),
    ("pages", ["-DLIVENESS"], LIVENESS, None),
    ("pages", ["-DWITHOUT_CHECK"], SAFETY, "assertion"),
    ("pages", ["-DIN_PLACE"], SAFETY, "assertion"),
    ("pages", ["-DLIVENESS", "-DWITHOUT_DEADLINE"], LIVENESS, "acceptance cycle"),
    ("pages", ["-DLIVENESS", "-DWITHOUT_SWEEP"], LIVENESS, "acceptance cycle"),
    ("chunks", ["-DONE_LINK"], SAFETY, None),
    ("chunks", ["-DUNITS=1"], SAFETY, None),
    ("chunks", ["-DUNITS=1", "-DTWO_PROCESSES"], SAFETY, None),
    ("chunks", ["-DONE_LINK", "-DLIVENESS"], LIVENESS, None),
    ("chunks", ["-DUNITS=1", "-DLIVENESS"], LIVENESS, None),
    ("chunks", ["-DUNITS=1", "-DTWO_PROCESSES", "-DLIVENESS"], LIVENESS, None),
    ("chunks", ["-DONE_LINK", "-DCOUNTS_BY_LINK"], SAFETY, "assertion"),
    ("chunks", ["-DONE_LINK", "-DWITHOUT_UNMAPPING"], SAFETY, "assertion"),
    ("chunks", ["-DONE_LINK", "-DRETURNS_BEFORE_CLOSING"], SAFETY, "assertion"),
    ("chunks", ["-DONE_LINK", "-DWITHOUT_FREE_BYTES"], SAFETY, "assertion"),
    ("chunks", ["-DONE_LINK", "-DLIVENESS", "-DDROPS_RETURNS"], LIVENESS, "acceptance cycle"),
    ("chunks", ["-DONE_LINK", "-DLIVENESS", "-DWITHOUT_UNREAD"], LIVENESS, "acceptance cycle"),
    ("chunks", ["-DONE_LINK", "-DLIVENESS", "-DWITHOUT_PROCESS_END"], LIVENESS,
     "acceptance cycle"),
    ("chunks", ["-DUNITS=1", "-DLIVENESS", "-DWITHOUT_SHUT"], LIVENESS, "acceptance cycle"),
    ("leader", [], SAFETY, None),
    ("leader", ["-DLIVENESS"], LIVENESS, None),
    ("leader", ["-DWITHOUT_EPOCHS"], SAFETY, "assertion"),
    ("leader", ["-DWITHOUT_ORDER"], SAFETY, "assertion"),
    ("leader", ["-DWITHOUT_DRAIN"], SAFETY, "assertion"),
    ("leader", ["-DANSWERS_BEFORE_THE_STORE"], SAFETY, "assertion"),
    ("leader", ["-DENDS_LEASES_EARLY"], SAFETY, "assertion"),
    ("leader", ["-DLIVENESS", "-DWITHOUT_EXPIRY"], LIVENESS, "acceptance cycle"),
    ("agents", [], SAFETY, None),
    ("agents", ["-DLIVENESS", "-DFAULTS=1"], LIVENESS, None),
    ("agents", ["-DWITHOUT_EPOCHS"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_NUMBERS"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_KEYS"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_EARLIER_JOINS"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_FENCE"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_ENDING"], SAFETY, "assertion"),
    ("agents", ["-DEXPIRES_EARLY"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_DRAIN"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_USE"], SAFETY, "assertion"),
    ("agents", ["-DWITHOUT_PLAN_EPOCHS"], SAFETY, "assertion"),
    ("agents", ["-DLIVENESS", "-DFAULTS=1", "-DWITHOUT_EXPIRY"], LIVENESS, "acceptance cycle"),
]


def check(case):
    """Returns the line to print, and whether the outcome is the expected one."""
    model, macros, (compile_flags, run_flags), expected = case
    name = " ".join([model, *(m.removeprefix("-D") for m in macros)])
    with tempfile.TemporaryDirectory(prefix="sluice-model-") as folder:
        def run(*line):
            return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
        shutil.copy(os.path.join(HERE, f"{model}.pml"), folder)
        made = run("spin", "-a", *macros, f"{model}.pml")
        if made.returncode == 0:
            made = run("cc", "-O0" if expected else "-O1", "-w", "-DVECTORSZ=2048", *compile_flags,
                       "-o", "pan", "pan.c")
        if made.returncode != 0:
            return f"{name}: {made.stdout}{made.stderr}", False
        # -m: a depth that all models stay below; a search that is cut off says so.
        out = run("./pan", "-m1000000", *run_flags).stdout
    errors = re.search(r"errors: (\d+)", out)
    states = re.search(r"(\d+) states, stored", out)
    if not errors or not states or "max search depth too small" in out:
        return f"{name}: no whole search\n{out}", False
    found = re.search(r"^pan:1: (.*)", out, re.MULTILINE)
    text = f"{name}: {states.group(1)} states, {found.group(1) if found else 'holds'}"
    if expected is None:
        return text, errors.group(1) == "0"
    return f"{text} (expected: {expected})", bool(found and expected in found.group(1))


def main():
    missing = [name for name in ("spin", "cc") if shutil.which(name) is None]
    if missing:
        print(f"SKIPPED: no {' and no '.join(missing)}; run: tools/install.sh build test")
        sys.exit(SKIPPED)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text, good in pool.map(check, CASES):
            print("ok    " if good else "FAILED", text)
            failed += not good
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
