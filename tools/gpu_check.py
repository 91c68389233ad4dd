#!/usr/bin/env python3
"""Runs everything that needs a GPU and prints two tables: tests, ready for docs/gpu-log.md, and
benchmarks against their goals.

Usage, in the folder that `make dist` makes: ./gpu_check [--output FILE] [--sanitizer]
A test that was skipped did not run on a GPU: it counts as a failure here. Exits 0 only when all
tests ran and passed and no benchmark failed; goals that are missed, and rivals that are not
installed, are told by the table alone. Needs Python's standard library and an NVIDIA driver; with
torch and transformers (--python) also ceilings and rivals are measured.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import gpu_bench

# Name in the table, program, filter. The instances of GPUs are named cuda, those on the host
# cuda_emulated.
GROUPS = [
    ("parity of ops", "parity_test", "*AttentionTest*/cuda:*RopeTest*/cuda:*MatmulTest*/cuda:"
                                     "*RowOpsTest*/cuda:*SamplingTest*/cuda"),
    ("graphs", "parity_test", "*GraphTest*/cuda"),
    ("exactness", "parity_test", "*ExactnessTest*/cuda"),
    ("golden models, whole engine", "cuda_models_test", "*_cuda"),
]
PROMPTS = ["1", "5,17,900,33", ",".join(str(3 + 7 * i % 3000) for i in range(200))]
TIMEOUT_S = 600
WHOLE_S = 470  # of tests and benchmarks together


@dataclass
class Row:
    """One line of the table."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def result(self):
        if self.failed or not self.passed:
            return "FAILED" if self.failed else "did not run"
        return "incomplete" if self.skipped else "passed"


class Runner:
    """Runs the folder's programs, with the folder's own glibc where the machine's is too old."""

    def __init__(self, folder, prefix=(), deadline=float("inf")):
        self.folder = folder
        self.prefix = list(prefix)
        self.deadline = deadline  # of time.monotonic()
        self.loader = []
        if self.run(["sluice", "--version"]).returncode != 0:
            glibc = os.path.join(folder, "lib", "glibc")
            libraries = glibc + ":" + os.path.join(folder, "lib")
            self.loader = [os.path.join(glibc, "ld-linux-x86-64.so.2"), "--library-path", libraries]

    def run_within(self, command, seconds, prefixed=False):
        """None when it ran longer."""
        program = os.path.join(self.folder, command[0])
        full = (self.prefix if prefixed else []) + self.loader + [program] + command[1:]
        try:
            return subprocess.run(full, cwd=self.folder, capture_output=True, text=True,
                                  timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return None

    def run(self, command, prefixed=False):
        seconds = min(TIMEOUT_S, max(self.deadline - time.monotonic(), 0.1))
        try:
            done = self.run_within(command, seconds, prefixed)
        except OSError as error:
            return subprocess.CompletedProcess(command, 127, "", str(error))
        if done is None:
            return subprocess.CompletedProcess(command, 124, "",
                                               f"did not end within {seconds:.0f} s")
        return done


def count_results(report, row):
    """Adds the cases of a GoogleTest JSON report to a row; the first message becomes its note."""
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            if case.get("failures"):
                row.failed += 1
                row.note = row.note or f"{case['name']}: {case['failures'][0]['failure'][:200]}"
            elif case.get("result") == "SKIPPED" or case.get("status") == "NOTRUN":
                row.skipped += 1
                for skip in case.get("skipped", []):
                    row.note = row.note or skip.get("message", "")[:200]
            else:
                row.passed += 1


def run_group(runner, name, program, test_filter):
    row = Row(name)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        done = runner.run(
            [program, f"--gtest_filter={test_filter}", f"--gtest_output=json:{path}"],
            prefixed=True)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                count_results(json.load(stream), row)
    # A crash leaves no report; a sanitizer's finding leaves a report without failures.
    if done.returncode != 0 and row.failed == 0:
        row.failed += 1
        row.note = (done.stderr or done.stdout).strip()[-300:]
    row.seconds = time.monotonic() - start
    return row


def generate(runner, device, prompt):
    done = runner.run(["sluice", "generate", "models/demo", "--device", device, "--prompt-ids",
                       prompt, "--max-tokens", "24", "--ignore-eos", "--dtype", "f32", "--json"])
    if done.returncode != 0:
        return None, done.stderr.strip()[-300:]
    return json.loads(done.stdout), ""


def compare_with_cpu(runner):
    """Greedy tokens of the demo model, on the GPU and on the CPU."""
    row = Row("demo model, greedy tokens equal to the CPU's")
    start = time.monotonic()
    for prompt in PROMPTS:
        want, problem = generate(runner, "cpu", prompt)
        got, gpu_problem = generate(runner, "cuda:0", prompt)
        if want is None or got is None:
            row.failed += 1
            row.note = row.note or problem or gpu_problem
        elif got["output_tokens"] != want["output_tokens"]:
            row.failed += 1
            row.note = row.note or f"prompt {prompt[:20]}: {got['output_tokens'][:8]}..., " \
                                   f"expected {want['output_tokens'][:8]}..."
        else:
            row.passed += 1
    row.seconds = time.monotonic() - start
    return row


def machine(runner):
    """What `doctor` says about CUDA."""
    done = runner.run(["sluice", "doctor", "--json"])
    try:
        checks = json.loads(done.stdout)["checks"]
    except (ValueError, KeyError):
        return "doctor failed: " + done.stderr.strip()[-300:]
    for check in checks:
        if check.get("name") == "cuda":
            return " ".join(text for text in (check.get("found"), check.get("advice")) if text)
    return "doctor says nothing about CUDA"


def table(commit, cuda, rows):
    lines = [f"Commit {commit}. {cuda}. glibc {platform.libc_ver()[1] or 'unknown'}.", "",
             "| test | result | passed | failed | skipped | seconds |", "|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.name} | {row.result} | {row.passed} | {row.failed} | {row.skipped} | "
                     f"{row.seconds:.1f} |")
    notes = [f"- {row.name}: {' '.join(row.note.split())}" for row in rows if row.note]
    return "\n".join(lines + ([""] + notes if notes else [])) + "\n"


def say(what):
    print(f"gpu_check: {what}", file=sys.stderr, flush=True)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", default=os.path.dirname(os.path.abspath(__file__)),
                        help="what make dist made; default: where this script lies")
    parser.add_argument("--output", help="write the table to this file too")
    parser.add_argument("--sanitizer", action="store_true",
                        help="run the tests alone, under compute-sanitizer (much slower)")
    parser.add_argument("--only", choices=["tests", "benchmarks"], help="leave out the others")
    parser.add_argument("--time-limit", type=float, default=WHOLE_S,
                        help=f"seconds of everything together, without --sanitizer ({WHOLE_S})")
    parser.add_argument("--python", default=sys.executable,
                        help="a Python with torch and transformers, for ceilings and rivals")
    # To try the benchmarks' way without a GPU: --device cpu --shape tiny.
    parser.add_argument("--device", default="cuda:0", help=argparse.SUPPRESS)
    parser.add_argument("--shape", default="llama-3-8b", choices=list(gpu_bench.LOADS),
                        help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def run_tests(runner):
    rows = []
    for group in GROUPS:
        say(group[0])
        rows.append(run_group(runner, *group))
    say("demo model")
    rows.append(compare_with_cpu(runner))
    return rows


def main(argv):
    start = time.monotonic()
    arguments = parse(argv)
    prefix = []
    if arguments.sanitizer:
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            print("gpu_check: compute-sanitizer is not in PATH", file=sys.stderr)
            return 2
        prefix = [tool, "--error-exitcode", "9"]
    deadline = float("inf") if arguments.sanitizer else start + arguments.time_limit
    runner = Runner(arguments.folder, prefix, deadline)
    try:
        with open(os.path.join(arguments.folder, "COMMIT"), encoding="utf-8") as stream:
            commit = stream.read().strip()
    except OSError:
        commit = "unknown"
    rows = [] if arguments.only == "benchmarks" else run_tests(runner)
    text = table(commit, machine(runner), rows)
    print(text, end="", flush=True)
    lines = []
    if arguments.only != "tests" and not arguments.sanitizer:
        lines = gpu_bench.Bench(runner, arguments, deadline, say).run()
        benchmarks = "\n" + gpu_bench.table(lines)
        print(benchmarks, end="")
        text += benchmarks
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as stream:
            stream.write(text)
    good = all(row.result == "passed" for row in rows)
    return 0 if good and all(line.result != "FAILED" for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
