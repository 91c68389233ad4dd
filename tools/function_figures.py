#!/usr/bin/env python3
"""Measures function processes (docs/isolation.md): memory of N, the first token of a cold one that
is started by its call and of one that was a warm worker, the decode rate of one beside the engine
in the server's process, the sum of the rates of several that decode at once, and the shares of two
tenants; and what adapters cost without isolation (docs/adapters.md). With --adapter all calls use
this adapter. `--only all` runs everything, `idle` with --idle-model. --quick shows in short that
all of it works; its figures mean nothing.

    tools/function_figures.py build/sluice MODEL [--functions 16] [--rounds 5] [--adapter DIR]
        [--tokens 128] [--steps 32] [--quick] [--idle-model models/demo] [--idle-functions 500]
        [--only all|steps,loads,memory,unshared,idle,warm,rate,together,shares]
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time

import adapter_figures
from ready_server import ReadyServer

KIB = 1024


class Server(ReadyServer):
    """`sluice serve` with a key a function."""

    def __init__(self, binary, model, keys, *options, adapter=None):
        self.called = "a" if adapter else "m"
        if adapter:
            options = (*options, "--adapter", "a=" + adapter)
        self.keys = [f"sk-function-{i:04}" for i in range(keys)]
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        path = os.path.join(self.folder.name, "keys")
        with open(path, "w", encoding="ascii") as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.writelines(f"tenant{i} {key}\n" for i, key in enumerate(self.keys))
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
        body = {"model": called, "prompt": [5 + (7919 * i + key) % 900 for i in range(words)],
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


def isolated(a, keys, warm=0):
    return Server(a.binary, a.model, keys, "--isolation", "process", "--sandbox", "best-effort",
                  "--max-functions", str(keys), "--warm-workers", str(warm),
                  "--max-num-seqs", "8", "--token-budget", "128", "--kv-cache-memory", "64MiB",
                  adapter=a.adapter)


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


def memory_and_cold_start(a):
    with isolated(a, a.functions) as server:
        cold, warm = [], []
        for key in range(a.functions):
            cold.append(server.stream(key, 8, 16)[0])
            warm.append(server.stream(key, 8, 16)[0])  # from the prefix cache but for a block
            server.stream(key, 2, 24)
        sums = {}
        for pid in server.children():
            for name, value in memory_of(pid).items():
                sums[name] = sums.get(name, 0) + value
        own = memory_of(server.process.pid)
    print(f"{a.functions} functions, each after an answer, MiB: "
          + ", ".join(f"{name} {value:.0f}" for name, value in sums.items())
          + f"; server: Pss {own['Pss']:.0f}")
    print(f"each: anonymous {sums['Pss_Anon'] / a.functions:.1f}, files "
          f"{sums['Pss_File'] / a.functions:.1f}, page tables {sums['tables'] / a.functions:.1f}")
    print_cold("a function that its call starts", cold, warm)


def print_cold(what, cold, warm):
    # A prompt of 16 tokens again is computed except for what the prefix cache has.
    extra = [1e3 * (one - two) for one, two in zip(cold, warm)]
    print(f"first token of {what}, less that of the same one when warm, ms: median "
          f"{statistics.median(extra):.1f} (of {len(extra)}: {min(extra):.1f} to {max(extra):.1f})")


def warm_workers(a):
    """The first call of each of a few keys, each time with a worker that is ready."""
    with isolated(a, a.functions, warm=1) as server:
        cold, again = [], []
        for key in range(a.functions):
            while server.metric("warm_functions") < 1:
                time.sleep(0.02)
            cold.append(server.stream(key, 8, 16)[0])
            again.append(server.stream(key, 8, 16)[0])
    print_cold("a function that was a warm worker", cold, again)


def rate(a):
    with isolated(a, 1) as function, Server(
            a.binary, a.model, 1, "--snapshot", "off", "--max-num-seqs", "8", "--token-budget",
            "128", "--kv-cache-memory", "64MiB", adapter=a.adapter) as plain:
        ratios = []
        for _ in range(a.rounds + 1):
            ratios.append(plain.stream(0, a.tokens, 16)[1] / function.stream(0, a.tokens, 16)[1])
        ratios = ratios[1:]
    print(f"speed of one function / engine in the server, {a.tokens} tokens: median "
          f"{statistics.median(ratios):.3f} (of {a.rounds}: {min(ratios):.3f} to {max(ratios):.3f})")


def run_all(calls):
    """Seconds that the calls take at the same time."""
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(*call) for call in calls]:
            done.result()
    return time.monotonic() - begin


def together(a):
    """The tokens a second of eight functions that decode at once, to those of one alone, which
    gives eight answers one after another."""
    count = 8
    with isolated(a, count) as server:
        for key in range(count):
            server.complete(key, 8, 0)
        ratios = []
        for salt in range(1, a.rounds + 1):
            alone = sum(run_all([(server.complete, 0, a.tokens, salt * count + i)])
                        for i in range(count))
            ratios.append(alone / run_all([(server.complete, key, a.tokens, salt)
                                           for key in range(count)]))
    print(f"sum of {count} functions that decode / one alone, {a.tokens} tokens each: median "
          f"{statistics.median(ratios):.3f} (of {a.rounds}: {min(ratios):.3f} to {max(ratios):.3f})")


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
          f"{used['tenant1'] / sum(used.values()):.3f} of all")


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
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="memory,warm,rate,together,shares")
    a = parser.parse_args()
    if a.quick:
        a.functions, a.rounds, a.tokens, a.steps, a.idle_functions = 2, 1, 16, 4, 4
    figures = {"steps": adapter_figures.steps,
               "loads": lambda a: adapter_figures.loads(a, Server),
               "memory": memory_and_cold_start, "unshared": unshared, "idle": idle,
               "warm": warm_workers, "rate": rate, "together": together, "shares": shares}
    for name in figures if a.only == "all" else a.only.split(","):
        figures[name](a)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
