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
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import gpu_bench

# Name in the table, program, filter. The instances of GPUs are named cuda, those on the host
# cuda_emulated.
GROUPS = [
    ("parity of ops", "parity_test", "*AttentionTest*/cuda:*RopeTest*/cuda:*MatmulTest*/cuda:"
                                     "*MatmulFp8Test*/cuda:*RowOpsTest*/cuda:*SamplingTest*/cuda"),
    ("parity of LoRA", "parity_test", "*LoraTest*/cuda"),
    ("graphs", "parity_test", "*GraphTest*/cuda"),
    ("exactness", "parity_test", "*ExactnessTest*/cuda"),
    ("golden models, whole engine", "cuda_models_test", "*_cuda-*CudaBackboneTest*"),
    ("backbone in exported memory", "cuda_models_test", "*CudaBackboneTest*_cuda"),
]
GROUP_LIMIT_S = 90  # of a group of tests, without --sanitizer
ALONE_LIMIT_S = 20  # of one test by itself
PROMPTS = ["1", "5,17,900,33", ",".join(str(3 + 7 * i % 3000) for i in range(200))]
PART_LIMIT_S = 60  # of anything else
SANITIZER_LIMIT_S = 1800  # of a group under compute-sanitizer
NOTES = 8  # lines about one group
WHOLE_S = 470  # of tests and benchmarks together
CUBLAS = "libcublasLt.so.13"  # as src/device/cuda/cublas_lt.cpp
TESTS_SHARE = 0.55  # of that, at most, where benchmarks follow


@dataclass
class Row:
    """One line of the table."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list = field(default_factory=list)

    @property
    def result(self):
        if self.failed or not self.passed:
            return "FAILED" if self.failed else "did not run"
        return "incomplete" if self.skipped else "passed"

    def fail(self, note):
        self.failed += 1
        self.notes.append(note)


class Runner:
    """Runs the folder's programs, with the folder's own glibc where the machine's is too old. The
    driver and cuBLASLt are looked for in LD_LIBRARY_PATH and in `libraries`, a folder, too."""

    def __init__(self, folder, prefix=(), deadline=float("inf"), libraries=""):
        self.folder = folder
        self.prefix = list(prefix)
        self.deadline = deadline  # of time.monotonic()
        self.loader = []
        path = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), libraries]))
        self.environment = {**os.environ, **({"LD_LIBRARY_PATH": path} if path else {})}
        if self.run(["sluice", "--version"]).returncode != 0:
            lib = os.path.join(folder, "lib")
            glibc = os.path.join(lib, "glibc")
            # In place of LD_LIBRARY_PATH.
            path = ":".join(filter(None, [glibc, lib, path]))
            self.loader = [os.path.join(glibc, "ld-linux-x86-64.so.2"), "--library-path", path]

    def run_within(self, command, seconds, prefixed=False):
        """None when it ran longer."""
        program = os.path.join(self.folder, command[0])
        full = (self.prefix if prefixed else []) + self.loader + [program] + command[1:]
        return gpu_bench.run_limited(full, seconds, self.folder, self.environment)

    def run(self, command, limit=PART_LIMIT_S, prefixed=False):
        seconds = min(limit, max(self.deadline - time.monotonic(), 0.1))
        try:
            done = self.run_within(command, seconds, prefixed)
        except OSError as error:
            return subprocess.CompletedProcess(command, 127, "", str(error))
        if done is None:
            return subprocess.CompletedProcess(command, 124, "",
                                               f"did not end within {seconds:.0f} s")
        return done


def toolkit_folders():
    """Where toolkits of CUDA keep their libraries: what the environment names, then the usual
    places, the latest version first."""
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-13*"), reverse=True)]
    return [os.path.join(root, lib) for root in roots
            for lib in ("lib64", os.path.join("targets", "x86_64-linux", "lib"), "lib")]


def cublas_folder(python):
    """The folder of the cuBLASLt that the programs shall take: pip's for this Python, else the
    toolkit's. Empty without one; then the loader may still find one."""
    folders = [pip_cublas_folder(python), *toolkit_folders()]
    return next((folder for folder in folders
                 if folder and os.path.exists(os.path.join(folder, CUBLAS))), "")


def pip_cublas_folder(python):
    """Where pip has put cuBLASLt for this Python, as it does with torch: where the loader does not
    look. Empty without one."""
    code = "import nvidia.cu13; print(*nvidia.cu13.__path__, sep='\\n')"
    try:
        done = gpu_bench.run_limited([python, "-c", code], PART_LIMIT_S)
    except OSError:
        return ""
    for package in done.stdout.splitlines() if done is not None and done.returncode == 0 else []:
        folder = os.path.join(package, "lib")
        if os.path.exists(os.path.join(folder, CUBLAS)):
            return folder
    return ""


PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def results_of(report):
    """Result and message of each case of a GoogleTest JSON report, by full name."""
    results = {}
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            name = f"{suite['name']}.{case['name']}"
            if case.get("failures"):
                results[name] = FAILED, case["failures"][0]["failure"]
            elif case.get("result") == "SKIPPED" or case.get("status") == "NOTRUN":
                results[name] = SKIPPED, " ".join(skip.get("message", "")
                                                  for skip in case.get("skipped", []))
            else:
                results[name] = PASSED, ""
    return results


def end_of(done):
    return " ".join((done.stderr or done.stdout).split())[-300:]


def run_tests_of(runner, program, test_filter, limit):
    """Results by name, and how the program ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        done = runner.run(
            [program, f"--gtest_filter={test_filter}", f"--gtest_output=json:{path}"], limit, True)
        try:
            with open(path, encoding="utf-8") as stream:
                return results_of(json.load(stream)), done
        except (OSError, ValueError, KeyError):
            return {}, done  # a crash leaves no report


def names_of_tests(runner, program, test_filter, limit):
    done = runner.run([program, f"--gtest_filter={test_filter}", "--gtest_list_tests"], limit)
    names, suite = [], ""
    for line in done.stdout.splitlines() if done.returncode == 0 else []:
        word = line.split("#", maxsplit=1)[0].strip()
        if not line.startswith(" "):
            suite = word
        elif word:
            names.append(suite + word)
    return names


def run_each_alone(runner, program, names, deadline):
    """A fault ends all later tests in the same process, so what did not pass is run again,
    a process for each test."""
    results = {}
    for name in names:
        left = min(deadline, runner.deadline) - time.monotonic()
        if left < 1:
            results[name] = FAILED, "not run by itself: no time was left"
            continue
        found, done = run_tests_of(runner, program, name, min(left, ALONE_LIMIT_S))
        result = found.get(name, (FAILED, end_of(done)))
        # A sanitizer's finding is not a failure of the test.
        if done.returncode != 0 and result[0] != FAILED:
            result = FAILED, end_of(done)
        results[name] = result
    return results


def run_group(runner, name, program, test_filter):
    row = Row(name)
    start = time.monotonic()
    limit = SANITIZER_LIMIT_S if runner.prefix else GROUP_LIMIT_S
    # Half of it for all of them in one process: one that hangs leaves time for the others.
    results, done = run_tests_of(runner, program, test_filter, limit / 2)
    if done.returncode != 0:
        left = start + limit - time.monotonic()
        names = names_of_tests(runner, program, test_filter, max(0.1, min(left, ALONE_LIMIT_S)))
        again = [n for n in names if runner.prefix or results.get(n, (FAILED,))[0] == FAILED]
        results.update(run_each_alone(runner, program, again, start + limit))
        if all(result != FAILED for result, _ in results.values()):
            row.fail(f"no test fails by itself, all together do: {end_of(done)}")
    for test, (result, message) in results.items():
        note = f"{test}: {' '.join(message.split())[:200]}"
        if result == FAILED:
            row.fail(note)
        elif result == SKIPPED:
            row.skipped += 1
            row.notes.append(note)
        else:
            row.passed += 1
    row.seconds = time.monotonic() - start
    return row


def generate(runner, device, prompt):
    done = runner.run(["sluice", "generate", "models/demo", "--device", device, "--prompt-ids",
                       prompt, "--max-tokens", "24", "--ignore-eos", "--dtype", "f32", "--json"])
    if done.returncode != 0:
        return None, end_of(done)
    try:
        return json.loads(done.stdout)["output_tokens"], ""
    except (ValueError, KeyError, TypeError):
        return None, f"printed no tokens: {end_of(done)}"


def compare_with_cpu(runner):
    """Greedy tokens of the demo model, on the GPU and on the CPU."""
    row = Row("demo model, greedy tokens equal to the CPU's")
    start = time.monotonic()
    for prompt in PROMPTS:
        want, problem = generate(runner, "cpu", prompt)
        got, gpu_problem = generate(runner, "cuda:0", prompt)
        if want is None or got is None:
            row.fail(f"prompt {prompt[:20]}: {problem or gpu_problem}")
        elif got != want:
            row.fail(f"prompt {prompt[:20]}: {got[:8]}..., expected {want[:8]}...")
        else:
            row.passed += 1
    row.seconds = time.monotonic() - start
    return row


def machine(runner):
    """The lines of `doctor` about CUDA."""
    done = runner.run(["sluice", "doctor", "--json"])
    try:
        checks = json.loads(done.stdout)["checks"]
    except (ValueError, KeyError, TypeError):
        return "doctor failed: " + end_of(done)
    for check in checks:
        if check.get("name") == "cuda":
            return " ".join(text for text in (check.get("found"), check.get("advice")) if text)
    return "doctor says nothing about CUDA"


def products_by(cuda):
    """The library for matrix products of many rows, from the lines of `doctor` about CUDA."""
    found = re.search(r"(?<!no )cuBLASLt \(([^)]*)\)", cuda)
    return f"cuBLASLt ({found.group(1)})" if found else "built-in kernels, no cuBLASLt found"


def table(commit, cuda, rows):
    lines = [f"Commit {commit}. {cuda}. glibc {platform.libc_ver()[1] or 'unknown'}.", "",
             "| test | result | passed | failed | skipped | seconds |", "|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.name} | {row.result} | {row.passed} | {row.failed} | {row.skipped} | "
                     f"{row.seconds:.1f} |")
    notes = []
    for row in rows:
        notes += [f"- {row.name}: {note}" for note in row.notes[:NOTES]]
        if len(row.notes) > NOTES:
            notes.append(f"- {row.name}: and {len(row.notes) - NOTES} more")
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


class Report:
    """Prints the report and writes it to a file, line by line, because later parts may fail."""

    def __init__(self, path):
        self.path = path
        self.text = ""

    def add(self, text):
        print(text, end="", flush=True)
        self.text += text
        if self.path:
            with open(self.path, "w", encoding="utf-8") as stream:
                stream.write(self.text)


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
    share = TESTS_SHARE if arguments.only is None else 1
    runner = Runner(arguments.folder, prefix, start + share * (deadline - start),
                    cublas_folder(arguments.python))
    try:
        with open(os.path.join(arguments.folder, "COMMIT"), encoding="utf-8") as stream:
            commit = stream.read().strip()
    except OSError:
        commit = "unknown"
    rows = [] if arguments.only == "benchmarks" else run_tests(runner)
    runner.deadline = deadline
    report = Report(arguments.output)
    cuda = machine(runner)
    report.add(table(commit, cuda, rows))
    lines = []
    if arguments.only != "tests" and not arguments.sanitizer:
        lines = gpu_bench.Bench(runner, arguments, deadline, say, products_by(cuda)).run()
        report.add("\n" + gpu_bench.table(lines))
    good = all(row.result == "passed" for row in rows)
    return 0 if good and all(line.result != "FAILED" for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
