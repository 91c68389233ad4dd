"""Function processes share the KV memory that their server borrows (docs/elastic-memory.md)."""

import concurrent.futures
import os
import signal
import subprocess
import time

import pytest

from lend_move_test import pss
from lend_test import MIB, Burst, Coordinator, await_joined, await_metric, metric
from processes import await_gone, functions_of
from serving import BINARY, LONG_WAIT, MODEL, NAME, PATIENCE, Server

FUNCTIONS = 2
LEAST, BUDGET = 32 * MIB, 32 * MIB  # KV memory grows by 16 MiB; each function has 16 MiB
KEYS = {name: f"sk-{name}-0123456789" for name in ("alice", "bob")}
PROMPT = 400


@pytest.fixture(name="coordinator")
def fixture_coordinator(tmp_path):
    running = Coordinator(tmp_path, LEAST, BUDGET)
    yield running
    running.stop()


@pytest.fixture(name="key_file")
def fixture_key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
    path.chmod(0o600)
    return str(path)


def isolated(coordinator, key_file, *more):
    return Server(*coordinator.options(), "--api-key-file", key_file, "--isolation", "process",
                  "--sandbox", "best-effort", "--max-functions", str(FUNCTIONS),
                  "--warm-workers", "0", *more, api_key=KEYS["alice"])


def ask(server, index, headers=None):
    """The text of a call that must end well."""
    body = {"model": NAME, "prompt": [10 + index % 100] * PROMPT + [index], "max_tokens": 60,
            "ignore_eos": True, "temperature": 0}
    answer = server.post("/v1/completions", body, headers=headers, timeout=100 * PATIENCE)
    assert answer.status == 200, answer
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "length", choice
    return choice["text"]


class Calls:
    """Calls with one key, again and again until join(), which gives their texts."""

    def __init__(self, server, key, count=120):
        self.server, self.headers = server, {"Authorization": "Bearer " + key}
        self.joining = False
        self.pool = concurrent.futures.ThreadPoolExecutor(count)
        self.calls = [self.pool.submit(self.run, i) for i in range(count)]

    def run(self, index):
        while True:
            text = ask(self.server, index, self.headers)
            if self.joining:
                return text

    def join(self):
        self.joining = True
        try:
            return [call.result(120 * PATIENCE) for call in self.calls]
        finally:
            self.pool.shutdown()


def process_pss(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("Pss:"))


def functions_pss(server):
    return {pid: process_pss(pid) for pid in functions_of(server.process.pid)}


def await_true(test, server, seconds=2 * LONG_WAIT):
    deadline = time.monotonic() + seconds * PATIENCE
    while not test():
        assert time.monotonic() < deadline, (functions_pss(server), server.metrics(),
                                             server.stderr())
        time.sleep(0.02)


def test_bytes_move_between_functions_and_another_server(coordinator, key_file):
    with isolated(coordinator, key_file) as server, Server(*coordinator.options()) as other:
        await_joined(server)
        await_joined(other)
        with Server() as plain:
            texts = [ask(plain, index) for index in range(8)]
        # The function of one key gets what the server borrows.
        alice = Calls(server, KEYS["alice"])
        await_true(lambda: functions_of(server.process.pid), server)
        (first,) = functions_of(server.process.pid)
        await_metric(server, "kv_borrowed_bytes", lambda value: value >= BUDGET - 4 * MIB)
        await_true(lambda: process_pss(first) >= 56 * MIB, server)
        full = process_pss(first)
        assert metric(server, "kv_limit_bytes") <= LEAST + BUDGET
        # Another key's gets its share of it; the first one shrinks, and loses no call.
        bob = Calls(server, KEYS["bob"])
        await_true(lambda: len(functions_of(server.process.pid)) == 2, server)
        (second,) = set(functions_of(server.process.pid)) - {first}
        await_true(lambda: process_pss(second) >= 28 * MIB and process_pss(first) <= full - 6 * MIB,
                   server)
        assert alice.join()[:8] == texts
        assert bob.join()[:8] == texts
        # Another server takes it, and functions give it back.
        before, held = pss(other), sum(functions_pss(server).values())
        burst = Burst(other, 120, 60, lasting=True)
        await_true(lambda: pss(other) >= before + 28 * MIB and
                   sum(functions_pss(server).values()) <= held - 12 * MIB, server)
        await_metric(server, "kv_borrowed_bytes", lambda value: value <= BUDGET / 2)
        burst.join()
        assert metric(server, "kv_recalls_total") > 0
        assert functions_of(server.process.pid) == sorted((first, second))


def test_the_memory_of_a_dead_function_comes_back(coordinator, key_file):
    with isolated(coordinator, key_file) as server:
        await_joined(server)
        body = {"model": NAME, "prompt": [5] * PROMPT, "max_tokens": 1500, "ignore_eos": True,
                "n": 16}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(server.post, "/v1/completions", body) for _ in range(4)]
            await_metric(server, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
            (victim,) = functions_of(server.process.pid)
            os.kill(victim, signal.SIGKILL)
            rescue = Calls(server, KEYS["bob"])
            await_gone([victim])
            for answer in [call.result() for call in calls]:
                assert answer.status != 200 or all(
                    choice["finish_reason"] != "length" for choice in answer.json()["choices"])
        await_true(lambda: max(functions_pss(server).values()) >= 40 * MIB, server)
        assert metric(server, "kv_limit_bytes") <= LEAST + BUDGET
        rescue.join()


def test_options_that_do_not_go_with_functions(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    lend = [BINARY, "serve", MODEL, "--port", "0", "--isolation", "process", "--lend",
            "http://127.0.0.1:1", "--lend-token-file", str(token), "--kv-cache-memory",
            "32MiB-64MiB"]
    for more in (["--lend-pages", "16MiB"], ["--borrow-pages", "16MiB"]):
        done = subprocess.run([*lend, *more], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "do not go with --isolation process" in done.stderr
    done = subprocess.run([*lend[:-1], "1KiB-64MiB"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MIN of" in done.stderr and "must hold a block" in done.stderr
