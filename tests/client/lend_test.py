"""Servers that share KV memory through a coordinator (docs/elastic-memory.md)."""

import re
import signal
import subprocess
import threading
import time

import pytest
from serving import BINARY, LONG_WAIT, NAME, PATIENCE, ROOT, Server

MIB = 1 << 20
LEAST, BUDGET = 4 * MIB, 24 * MIB  # a token of the demo model has 1 KiB of KV
PROMPT = 400
WHOLE = 2 * LEAST + BUDGET
TOKEN = "0123456789abcdef0123456789abcdef"


class Coordinator:
    """`sluice coordinator` on a free port; `kill` and `start` again keep the port. `prefix`: a
    command that runs it."""

    def __init__(self, folder, least=LEAST, budget=BUDGET, host="127.0.0.1", prefix=(), expiry=2):
        self.least, self.budget, self.host, self.prefix = least, budget, host, prefix
        self.expiry = expiry
        self.token = folder / "token"
        self.token.write_text(TOKEN + "\n")
        self.token.chmod(0o600)
        self.port = 0
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*self.prefix, BINARY, "coordinator", "--host", self.host, "--port", str(self.port),
             "--token-file", str(self.token), "--budget", f"cpu={self.budget}", "--expiry",
             str(self.expiry)],
            stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for line in self.process.stderr:
            found = re.search(r"http://[\d.]+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                return
        raise AssertionError("the coordinator did not start")

    def stop(self, by=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(by)
        self.process.wait(timeout=LONG_WAIT * PATIENCE)
        self.process.stderr.close()

    def options(self, at=None):
        """Options of a server that reaches the coordinator `at` an address."""
        url = f"http://{at or f'{self.host}:{self.port}'}"
        return ["--lend", url, "--lend-token-file", str(self.token),
                "--kv-cache-memory", f"{self.least}-{self.least + self.budget}",
                "--max-num-seqs", "256", "--max-model-len", "2048"]


@pytest.fixture
def coordinator(tmp_path):
    running = Coordinator(tmp_path)
    yield running
    running.stop()


def test_a_server_that_was_stopped_says_why_it_has_the_minimum(coordinator):
    with Server(*coordinator.options()) as server:
        server.await_stderr("lends; KV memory is")
        with server.stopped():
            time.sleep(1.5 * coordinator.expiry)
        server.await_stderr("does not lend (no answer came in time); serving with the minimum")


def metric(server, name):
    return server.metrics()[name]


def await_metric(server, name, test, seconds=LONG_WAIT):
    deadline = time.monotonic() + seconds * PATIENCE
    while not test(value := metric(server, name)):
        assert time.monotonic() < deadline, (name, value, server.stderr())
        time.sleep(0.02)
    return value


class Burst:
    """Requests at once, whose KV needs more than a server's half; every one must end well. With
    `lasting` each is sent again until `join`, however quick the server is."""

    def __init__(self, server, count, tokens, lasting=False):
        self.answers = []
        self.joining = threading.Event()
        if not lasting:
            self.joining.set()
        self.threads = [threading.Thread(target=self.call, args=(server, i, tokens), daemon=True)
                        for i in range(count)]
        for thread in self.threads:
            thread.start()

    def call(self, server, index, tokens):
        body = {"model": NAME, "prompt": [10 + index % 100] * PROMPT + [index],
                "max_tokens": tokens, "ignore_eos": True}
        try:
            while True:
                answer = server.post("/v1/completions", body, timeout=100 * PATIENCE)
                outcome = (answer.status, answer.json()["choices"][0]["finish_reason"])
                if outcome != (200, "length") or self.joining.is_set():
                    break
        except Exception as error:  # all of them are reported
            outcome = error
        self.answers.append(outcome)

    def join(self):
        self.joining.set()
        for thread in self.threads:
            thread.join(timeout=120 * PATIENCE)
        assert self.answers == [(200, "length")] * len(self.threads)


def await_joined(server):
    await_metric(server, "kv_lending_joined", lambda value: value == 1)
    time.sleep(2.2)  # the coordinator grants nothing for one expiry after its start


def test_a_burst_gets_more_than_half_and_gives_it_back(coordinator):
    with Server(*coordinator.options()) as busy, Server(*coordinator.options()) as other:
        await_joined(busy)
        await_joined(other)
        assert metric(busy, "kv_limit_bytes") == LEAST
        burst = Burst(busy, 120, 60, lasting=True)
        await_metric(busy, "kv_limit_bytes", lambda value: value > WHOLE / 2)
        burst.join()
        # Then the other way: the first gives back what it does not use.
        second = Burst(other, 120, 60, lasting=True)
        await_metric(other, "kv_limit_bytes", lambda value: value > WHOLE / 2)
        # The one that grows is read first.
        assert metric(other, "kv_limit_bytes") + metric(busy, "kv_limit_bytes") <= WHOLE
        second.join()
        assert metric(busy, "kv_recalls_total") > 0


def test_the_memory_of_a_killed_server_comes_back(coordinator):
    with Server(*coordinator.options()) as survivor:
        with Server(*coordinator.options(), expected_status=-signal.SIGKILL) as victim:
            await_joined(victim)
            burst = Burst(victim, 120, 400, lasting=True)
            await_metric(victim, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
            victim.process.kill()
            for thread in burst.threads:
                thread.join(timeout=2 * LONG_WAIT * PATIENCE)
        again = Burst(survivor, 120, 60, lasting=True)
        await_metric(survivor, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
        again.join()


def test_without_a_coordinator_servers_have_their_minimum(coordinator):
    with Server(*coordinator.options()) as server:
        await_joined(server)
        burst = Burst(server, 120, 200, lasting=True)
        await_metric(server, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
        coordinator.stop(signal.SIGKILL)
        await_metric(server, "kv_lending_joined", lambda value: value == 0)
        await_metric(server, "kv_limit_bytes", lambda value: value == LEAST)
        await_metric(server, "kv_borrowed_bytes", lambda value: value == 0)
        coordinator.start()
        await_metric(server, "kv_limit_bytes", lambda value: value > LEAST)
        burst.join()
        assert "serving with the minimum" in server.stderr()
