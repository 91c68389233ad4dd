"""Figure 12 of tools/elastic_figures.py, real and small: two servers that share KV memory, bursts
on one and then on the other, and how their memory follows.
"""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from typing import NamedTuple, Optional

from ready_server import ReadyServer, free_port

MIB = 1 << 20


class Burst(NamedTuple):
    server: str  # "first" or "second"
    took: Optional[float]  # seconds until it had more than half; None: it never had
    limit_mib: float  # of this server, two seconds later
    other_mib: float
    begin: float  # seconds, as in Elasticity.samples
    end: float


class Elasticity(NamedTuple):
    whole_mib: int
    bursts: list
    samples: list  # seconds, and the KV limits of both servers in MiB


class Load(threading.Thread):
    """Calls of one server, `clients` at a time, until stop()."""

    def __init__(self, port, model, clients):
        super().__init__()
        self.port, self.model = port, model
        self.going = threading.Event()
        self.going.set()
        self.failed = []
        self.clients = [threading.Thread(target=self.call, args=(i,)) for i in range(clients)]

    def run(self):
        for client in self.clients:
            client.start()
        for client in self.clients:
            client.join()

    def call(self, index):
        body = json.dumps({"model": self.model, "prompt": [10 + index % 100] * 400 + [index],
                           "max_tokens": 100, "ignore_eos": True})
        while self.going.is_set():
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
            link.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            text = answer.read()
            link.close()
            if answer.status != 200:
                self.failed.append(text)
                return

    def stop(self):
        self.going.clear()


def limit_of(port):
    """kv_limit_bytes of a server."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.request("GET", "/metrics")
    text = link.getresponse().read().decode()
    link.close()
    return float(re.search(r"kv_limit_bytes(?:{[^}]*})? ([0-9.e+]+)", text).group(1))


def seconds_until(test):
    start = time.monotonic()
    while not test():
        if time.monotonic() > start + 60:
            return None
        time.sleep(0.01)
    return time.monotonic() - start


@contextlib.contextmanager
def two_servers(sluice, model, folder, least, budget):
    token = os.path.join(folder, "token")
    with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as out:
        out.write("0123456789abcdef0123456789abcdef\n")
    port = free_port()
    with subprocess.Popen([sluice, "coordinator", "--port", str(port), "--token-file", token,
                           "--budget", f"cpu={budget}", "--expiry", "2"],
                          stderr=subprocess.DEVNULL) as coordinator:
        try:
            serve = [sluice, "serve", model, "--max-num-seqs", "256", "--max-model-len", "2048",
                     "--lend", f"http://127.0.0.1:{port}", "--lend-token-file", token,
                     "--kv-cache-memory", f"{least}-{least + budget}"]
            with ReadyServer(serve) as one, ReadyServer(serve) as other:
                time.sleep(3)  # nothing is granted for one expiry after a start
                yield one, other
        finally:
            coordinator.terminate()


class Limits(threading.Thread):
    """The KV limits of two servers in MiB over time, until its end."""

    def __init__(self, one, other):
        super().__init__(daemon=True)
        self.ports = one.port, other.port
        self.began, self.samples = time.monotonic(), []
        self.ends = threading.Event()
        self.start()

    def now(self):
        return time.monotonic() - self.began

    def run(self):
        while not self.ends.wait(0.05):
            at = self.now()
            self.samples.append((at, *(limit_of(port) / MIB for port in self.ports)))

    def end(self):
        self.ends.set()
        self.join()
        return self.samples


def measure(sluice, model, folder):
    least, budget = 8 * MIB, 48 * MIB
    whole = 2 * least + budget
    name = os.path.basename(model.rstrip("/"))
    bursts = []
    with two_servers(sluice, model, folder, least, budget) as (one, other):
        limits = Limits(one, other)
        for busy, idle in ((one, other), (other, one), (one, other)):
            load, begin = Load(busy.port, name, 120), limits.now()
            load.start()
            took = seconds_until(lambda port=busy.port: limit_of(port) > whole / 2)
            time.sleep(2)
            reached = limit_of(busy.port) / MIB, limit_of(idle.port) / MIB
            load.stop()
            load.join()
            if load.failed:
                sys.exit(f"a call failed: {load.failed[0]}")
            bursts.append(Burst("first" if busy is one else "second", took, *reached, begin,
                                limits.now()))
        return Elasticity(whole // MIB, bursts, limits.end())
