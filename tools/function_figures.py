#!/usr/bin/env python3
"""Measures function processes (docs/isolation.md): memory of N, the first token of a cold one that
is started by its call and of one that was a warm worker, the decode rate of one beside the engine
in the server's process, the sum of the rates of several that decode at once, and the shares of two
tenants; and what adapters cost without isolation (docs/adapters.md). With --adapter all calls use
this adapter. `--only all` runs everything, `idle` with --idle-model. --quick shows in short that
all of it works; its figures mean nothing.

    tools/function_figures.py build/sluice MODEL [--functions 16] [--rounds 5] [--adapter DIR]
        [--tokens 128] [--steps 32] [--quick] [--idle-model models/demo] [--idle-functions 500]
        [--only all|ROW,ROW...] [--turns-test build/.../function_turns_test]

Rows: steps, loads, unprepared, memory, adapters, unshared, idle, warm, rate, together, shares,
billed, spins.
`together` has turns and --turns off in one run. `memory` tells the time that filling the page
tables of the weights takes (by this program, on the same memory) apart from that of a cold one.
`adapters` gives each function an adapter of its own (rank 8, q and v). `unprepared` registers
adapters from their files beside a stream. `spins` runs a test program, since only it has functions
that misbehave; its model is a small one of its own.
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import glob
import http.client
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import adapter_figures
from ready_server import ReadyServer

KIB = 1024


class Server(ReadyServer):
    """`sluice serve` with a key a function."""

    def __init__(self, binary, model, keys, *options, adapter=None, role=""):
        self.called = "a" if adapter else "m"
        self.salt = 0  # prompts with another one are not in the prefix cache
        if adapter:
            options = (*options, "--adapter", "a=" + adapter)
        self.keys = [f"sk-function-{i:04}" for i in range(keys)]
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        path = os.path.join(self.folder.name, "keys")
        with open(path, "w", encoding="ascii") as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.writelines(f"tenant{i} {key} {role}\n" for i, key in enumerate(self.keys))
        super().__init__([binary, "serve", model, "--api-key-file", path, "--served-model-name",
                          "m", *options])

    def __exit__(self, *_):
        super().__exit__()
        self.folder.cleanup()

    def stream(self, key, tokens, words, called=None):
        """Seconds to the first token and to the last."""
        times = self.times(key, tokens, words, called or self.called)
        return times[1] - times[0], times[-1] - times[0]

    def start_stream(self, key, tokens):
        """Begins a stream of the base model; returns a function that waits for its end and gives
        the gaps between its tokens. Its first token has come."""
        times, began = [], threading.Event()
        thread = threading.Thread(target=self.times, args=(key, tokens, 16, "m", times, began))
        thread.start()
        began.wait()

        def gaps():
            thread.join()
            return [b - a for a, b in zip(times[1:], times[2:])]
        return gaps

    def times(self, key, tokens, words, called, times=None, began=None):
        """The times of the call and of each token; added to `times` as they come."""
        body = {"model": called,
                "prompt": [5 + (7919 * i + key + self.salt) % 900 for i in range(words)],
                "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Authorization": "Bearer " + self.keys[key]})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(answer.read().decode())
        times = [] if times is None else times
        times.append(begin)
        while line := answer.readline():
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
                if began:
                    began.set()
        return times

    def load_adapter(self, name, path):
        self.ask("POST", "/v1/load_lora_adapter", 0, json.dumps(
            {"lora_name": name, "lora_path": path, "load_inplace": True}))

    def cpu_seconds(self, pid=None):
        """That all threads of it, or of another process, have used so far; those that have ended
        are missing."""
        sum_ = 0
        for path in glob.glob(f"/proc/{pid or self.process.pid}/task/*/schedstat"):
            with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
                sum_ += int(stream.read().split()[0])
        return sum_ / 1e9

    def complete(self, key, tokens, salt):
        """An answer that does not stream, so that this client needs no CPU time meanwhile."""
        body = {"model": self.called, "prompt": [5 + (7919 * salt + key) % 900] * 8,
                "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        answer = self.ask("POST", "/v1/completions", key, json.dumps(body))
        assert json.loads(answer)["usage"]["completion_tokens"] == tokens

    def ask(self, method, path, key=0, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {"Authorization": "Bearer " + self.keys[key]})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise SystemExit(text)
        return text

    def turn_seconds(self):
        """By tenant."""
        found = {}
        for line in self.ask("GET", "/metrics").splitlines():
            if line.startswith("sluice:function_turn_seconds_total{"):
                found[line.split('"')[1]] = float(line.rpartition(" ")[2])
        return found

    def metric(self, name):
        for line in self.ask("GET", "/metrics").splitlines():
            if line.startswith("sluice:" + name + "{"):
                return float(line.rpartition(" ")[2])
        raise SystemExit(f"/metrics has no {name}")


def memory_of(pid):
    """MiB: shared in part by others (PSS) by kind, and page tables."""
    found = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:
        for line in stream:
            name, _, rest = line.partition(":")
            if name in ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem"):
                found[name] = int(rest.split()[0]) / KIB
    with open(f"/proc/{pid}/status", encoding="ascii") as stream:
        found["tables"] = next(int(l.split()[1]) for l in stream if l.startswith("VmPTE")) / KIB
    return found


def fill_seconds(server, threads):
    """The time that threads of this program take to fill the page tables of the server's weights
    once, and their MiB."""
    found = [path for path in glob.glob(f"/proc/{server.process.pid}/fd/*")
             if os.readlink(path).startswith("/memfd:sluice-backbone")]
    if not found:
        raise SystemExit("the server has no open memory of weights")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    populate_read = 22  # MADV_POPULATE_READ, from Linux 5.14
    descriptor = os.open(found[0], os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    base = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    part = -(-size // threads // mmap.PAGESIZE) * mmap.PAGESIZE

    def fill(i):
        begin, end = i * part, min((i + 1) * part, size)
        if begin < end and libc.madvise(base + begin, end - begin, populate_read) != 0:
            raise OSError(ctypes.get_errno(), "MADV_POPULATE_READ")

    seconds = run_all([(fill, i) for i in range(threads)])
    libc.munmap(base, size)
    return seconds, size / KIB / KIB


def spread(values, digits=3):
    return (f"median {statistics.median(values):.{digits}f} (of {len(values)}: "
            f"{min(values):.{digits}f} to {max(values):.{digits}f})")


def print_conditions():
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        model = next((line.partition(":")[2].strip() for line in stream
                      if line.startswith("model name")), "unknown CPU")
    print(f"conditions: {model}, {len(os.sched_getaffinity(0))} threads, load of the last minute "
          f"{os.getloadavg()[0]:.1f}")


def isolated(a, keys, warm=0, turns="on", more=()):
    return Server(a.binary, a.model, keys, "--isolation", "process", "--sandbox", "best-effort",
                  "--max-functions", str(keys), "--warm-workers", str(warm), "--turns", turns,
                  "--max-num-seqs", "8", "--token-budget", "128", "--kv-cache-memory", "64MiB",
                  *more, adapter=a.adapter)


def idle(a):
    """Idle functions of a small model, each after an answer."""
    with Server(a.binary, a.idle_model, a.idle_functions, "--isolation", "process", "--sandbox",
                "best-effort", "--max-functions", str(a.idle_functions), "--warm-workers", "0",
                "--max-num-seqs", "8", "--token-budget", "128", "--kv-cache-memory", "64MiB",
                "--function-idle", "100000") as server:
        for key in range(a.idle_functions):
            server.stream(key, 2, 16)
        pids = server.children()
        all_ = [memory_of(pid) for pid in [*pids, server.process.pid]]
    sums = {name: sum(one[name] for one in all_) for name in ("Pss", "tables")}
    print(f"{len(pids)} idle functions of {a.idle_model} and their server: "
          f"{sums['Pss']:.0f} MiB (PSS) and {sums['tables']:.0f} MiB of page tables, in all "
          f"{(sums['Pss'] + sums['tables']) / 1024:.2f} GiB")


def unshared(a):
    """Three servers without isolation, which have no common weights but the checkpoint's file."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(
            a.binary, a.model, 1, "--snapshot", "off", "--max-num-seqs", "8", "--token-budget",
            "128", "--kv-cache-memory", "64MiB", adapter=a.adapter)) for _ in range(3)]
        for server in servers:
            server.stream(0, 8, 16)
        all_ = [memory_of(server.process.pid) for server in servers]
    print("three servers without isolation, MiB: " + ", ".join(
        f"{name} {sum(one[name] for one in all_):.0f}" for name in all_[0])
        + " (files in Pss_File are the mapped checkpoint, which the three share)")


def adapters_each(a):
    """As memory_and_cold_start(), each function with its own adapter of rank 8 on q and v."""
    config = adapter_figures.config_of(a.model)
    modules = ("q_proj", "v_proj")
    with tempfile.TemporaryDirectory() as folder:
        options = []
        for i in range(a.functions):
            path = os.path.join(folder, f"each{i}")
            adapter_figures.write_adapter(path, config, 8, modules, i)
            options += ["--adapter", f"each{i}={path}"]
        size = adapter_figures.adapter_bytes(config, 8, modules) / KIB / KIB
        print(f"each function has an adapter of rank 8 on q and v, {size:.1f} MiB:")
        memory_and_cold_start(a, options, lambda key: f"each{key}")


def memory_and_cold_start(a, options=(), called=lambda key: None):
    with isolated(a, a.functions, more=options) as server:
        cold, warm = [], []
        for key in range(a.functions):
            name = called(key)
            cold.append(server.stream(key, 8, 16, name)[0])
            warm.append(server.stream(key, 8, 16, name)[0])  # from the prefix cache but for a block
            server.stream(key, 2, 24, name)
        fills = [fill_seconds(server, len(os.sched_getaffinity(0))) for _ in range(a.rounds)]
        sums = {}
        for pid in server.children():
            for name, value in memory_of(pid).items():
                sums[name] = sums.get(name, 0) + value
        own = memory_of(server.process.pid)
    print(f"{a.functions} functions, each after an answer, MiB: "
          + ", ".join(f"{name} {value:.0f}" for name, value in sums.items())
          + f"; server: Pss {own['Pss']:.0f} (goal: backbone + 25 MiB each, KV and adapter apart)")
    print(f"each: anonymous {sums['Pss_Anon'] / a.functions:.1f}, files "
          f"{sums['Pss_File'] / a.functions:.1f}, page tables {sums['tables'] / a.functions:.1f}")
    print_cold("a function that its call starts", cold, warm, 60)
    fill = [1e3 * seconds for seconds, _ in fills]
    left = [1e3 * (one - two) - statistics.median(fill) for one, two in zip(cold, warm)]
    print(f"filling the page tables of {fills[0][1]:.0f} MiB of weights alone, ms: "
          f"{spread(fill, 1)}; cold first token less that, ms: {spread(left, 1)} (goal 60)")


def print_cold(what, cold, warm, goal):
    # A prompt of 16 tokens again is computed except for what the prefix cache has.
    extra = [1e3 * (one - two) for one, two in zip(cold, warm)]
    print(f"first token of {what}, less that of the same one when warm, ms: {spread(extra, 1)} "
          f"(goal {goal})")


def warm_workers(a):
    """The first call of each of a few keys, each time with a worker that is ready."""
    with isolated(a, a.functions, warm=1) as server:
        cold, again = [], []
        for key in range(a.functions):
            while server.metric("warm_functions") < 1:
                time.sleep(0.02)
            cold.append(server.stream(key, 8, 16)[0])
            again.append(server.stream(key, 8, 16)[0])
    print_cold("a function that was a warm worker", cold, again, 10)


def rate(a):
    with isolated(a, 1) as function, Server(
            a.binary, a.model, 1, "--snapshot", "off", "--max-num-seqs", "8", "--token-budget",
            "128", "--kv-cache-memory", "64MiB", adapter=a.adapter) as plain:
        ratios = []
        for _ in range(a.rounds + 1):
            ratios.append(plain.stream(0, a.tokens, 16)[1] / function.stream(0, a.tokens, 16)[1])
        ratios = ratios[1:]
    print(f"speed of one function / engine in the server, {a.tokens} tokens: {spread(ratios)} "
          "(goal 0.97; demo model 0.90)")


def run_all(calls):
    """Seconds that the calls take at the same time."""
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(*call) for call in calls]:
            done.result()
    return time.monotonic() - begin


def together(a):
    """The tokens a second of eight functions that decode at once, to those of one alone, which
    gives eight answers one after another; with turns and without, in turns."""
    count = 8
    ratios = {"on": [], "off": []}
    with isolated(a, count) as with_turns, isolated(a, count, turns="off") as free:
        servers = {"on": with_turns, "off": free}
        for server in servers.values():
            for key in range(count):
                server.complete(key, 8, 0)
        for salt in range(1, a.rounds + 1):
            for turns, server in servers.items():
                alone = sum(run_all([(server.complete, 0, a.tokens, salt * count + i)])
                            for i in range(count))
                ratios[turns].append(alone / run_all(
                    [(server.complete, key, a.tokens, salt) for key in range(count)]))
    print(f"sum of {count} functions that decode / one alone, {a.tokens} tokens each: "
          f"with turns {spread(ratios['on'])} (goal 0.90); "
          f"free-running pools {spread(ratios['off'])}")


def shares(a):
    """The share of turn time of a tenant with 2 requests at any time beside one with 20, for ten
    seconds."""
    with isolated(a, 2) as server:
        for key in range(2):
            server.complete(key, 8, 0)
        end = time.monotonic() + 11
        samples = []

        def sample():
            for pause in (1, 10):  # the workers must have begun, and not yet ended
                time.sleep(pause)
                samples.append(server.turn_seconds())

        def calls(key, worker):
            salt = 0
            while time.monotonic() < end + 1:
                salt += 1
                server.complete(key, a.tokens, 100 * worker + salt)

        run_all([(calls, worker % 11 // 10, worker) for worker in range(22)] + [(sample,)])
        used = {key: time_ - samples[0][key] for key, time_ in samples[1].items()}
    print(f"turn time of a tenant with 2 requests at any time beside one with 20: "
          f"{used['tenant1'] / sum(used.values()):.3f} of all (goal 0.45)")


def billed(a):
    """The CPU time of one function, as the kernel counts it, beside what its turns are billed as:
    prompts of 512 tokens, and streams."""
    cores = len(os.sched_getaffinity(0))
    with isolated(a, 1) as server:
        server.complete(0, 8, 0)
        pid, = server.children()
        found = {"prompts": [], "streams": []}
        for _ in range(a.rounds):
            for name, (tokens, words) in {"prompts": (1, 512), "streams": (a.tokens, 16)}.items():
                time.sleep(0.2)  # the last turn counts once it has ended
                cpu, turns = server.cpu_seconds(pid), server.turn_seconds()["tenant0"]
                for _ in range(4):
                    server.salt += 1
                    server.stream(0, tokens, words)
                time.sleep(0.2)
                turns = server.turn_seconds()["tenant0"] - turns
                found[name].append((server.cpu_seconds(pid) - cpu) / (turns * cores))
    for name, values in found.items():
        print(f"CPU time of a function to its turns x {cores} cores, {name}: {spread(values)} "
              "(goal 0.85 to 1)")


def spins(a):
    """The gaps of a function that decodes, alone and beside one that spins."""
    test = a.turns_test or next(iter(glob.glob(os.path.join(
        os.path.dirname(os.path.realpath(a.binary)), "..", "tests", "integration",
        "function_turns_test"))), None)
    if not test:
        raise SystemExit("function_turns_test is not beside the binary: build it, or say where it "
                         "is with --turns-test")
    for mode, case, what in (
            ("keeps", "ATurnThatIsNeverReturned", "never returns its turn"),
            ("ignores", "ComputingWithoutATurn", "computes without a turn")):
        stops, alone, longest, worse = [], [], [], []
        for _ in range(a.rounds):
            done = subprocess.run(
                [test, "--gtest_also_run_disabled_tests",
                 f"--gtest_filter=GreedyFunctionTest.DISABLED_FiguresOf{case}"],
                capture_output=True, text=True, check=False)
            lines = [line.split()[2:] for line in done.stdout.splitlines()
                     if line.startswith(f"figures {mode} ")]
            if done.returncode != 0 or len(lines) != 1:
                raise SystemExit(done.stdout + done.stderr)
            stopped, p99, most, *seconds = map(float, lines[0])
            stops.append(stopped)
            alone.append(p99)
            longest.append(most)
            worse.append(sum(second > 2 * p99 for second in seconds))
        print(f"a function that {what}: P99 gap of a sibling alone {spread(alone, 1)} ms; seconds "
              f"of {len(seconds)} with more than twice that beside it {spread(worse, 0)} (goal 1); "
              f"longest gap {spread(longest, 0)} ms; stopped {spread(stops, 0)} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--functions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--adapter")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--idle-model", default="models/demo")
    parser.add_argument("--idle-functions", type=int, default=500)
    parser.add_argument("--turns-test")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="memory,warm,rate,together,shares")
    a = parser.parse_args()
    if a.quick:
        a.functions, a.rounds, a.tokens, a.steps, a.idle_functions = 2, 1, 16, 4, 4
    figures = {"steps": adapter_figures.steps,
               "loads": lambda a: adapter_figures.loads(a, Server),
               "unprepared": lambda a: adapter_figures.unprepared(a, Server),
               "memory": memory_and_cold_start, "adapters": adapters_each, "unshared": unshared,
               "idle": idle, "warm": warm_workers, "rate": rate, "together": together,
               "shares": shares, "billed": billed, "spins": spins}
    print_conditions()
    for name in figures if a.only == "all" else a.only.split(","):
        figures[name](a)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
