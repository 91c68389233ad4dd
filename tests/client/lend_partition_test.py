"""Networks that fail between a coordinator and two servers (docs/elastic-memory.md). Each of the
three has a network namespace of its own, and pairs of virtual links join them."""

import json
import threading
import time

import pytest

from lend_move_test import pss
from lend_test import MIB, TOKEN, Burst, Coordinator, await_metric, metric
from network import Apart, a_network
from serving import LONG_WAIT, NAME, PATIENCE
from wire import Wire

LEAST, BUDGET = 16 * MIB, 32 * MIB  # KV memory grows by 16 MiB
WHOLE = 2 * LEAST + BUDGET
SLACK = 24 * MIB  # of memory that is not KV memory; lent twice, it would be 32 MiB more


class Watch(threading.Thread):
    """Adds up what both servers have, until its end: their KV limits, and their memory beyond what
    they had at first."""

    def __init__(self, *servers):
        super().__init__(daemon=True)
        self.servers, self.over = servers, []
        self.base = {server: pss(server) for server in servers}
        self.ends = threading.Event()
        self.start()

    def run(self):
        while not self.ends.wait(0.02):
            limits = self.sum(lambda server: metric(server, "kv_limit_bytes"))
            taken = self.sum(lambda server: pss(server) - self.base[server])
            if limits > WHOLE or taken > WHOLE + SLACK:
                self.over.append((limits / MIB, taken / MIB))

    def sum(self, of):
        """Memory that moves while it is read is counted once: the first is read again."""
        first, second = self.servers
        before = of(first)
        other = of(second)
        return min(before, of(first)) + other

    def end(self):
        self.ends.set()
        self.join()
        assert not self.over, self.over[:5]


def books(network, coordinator):
    connection = network.middle.connection(coordinator.port, 60)
    try:
        connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer {TOKEN}"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def still_serves(server):
    body = {"model": NAME, "prompt": [7] * 20, "max_tokens": 4, "ignore_eos": True}
    answer = server.post("/v1/completions", body, timeout=100 * PATIENCE)
    assert answer.status == 200, answer


@pytest.fixture(name="network")
def fixture_network():
    with a_network() as network:
        yield network


def part(first, second, fault):
    """One fault and its end, while both servers have more to do than their minimum allows."""
    bursts = [Burst(first, 120, 20, lasting=True)]
    await_metric(first, "kv_limit_bytes", lambda value: value > LEAST + BUDGET * 3 / 4)
    heal = fault()
    bursts.append(Burst(second, 120, 20, lasting=True))
    if fault.__name__ == "slow":
        await_metric(second, "kv_limit_bytes", lambda value: value >= LEAST + BUDGET * 3 / 8)
        assert metric(first, "kv_lending_joined") == 1
    else:
        await_metric(first, "kv_lending_joined", lambda value: value == 0)
        await_metric(first, "kv_limit_bytes", lambda value: value == LEAST)
        await_metric(second, "kv_limit_bytes", lambda value: value > LEAST + BUDGET * 3 / 4)
        await_metric(first, "kv_borrowed_bytes", lambda value: value == 0)
    for server in (first, second):
        still_serves(server)
    heal()
    await_metric(first, "kv_lending_joined", lambda value: value == 1)
    await_metric(first, "kv_limit_bytes", lambda value: value >= LEAST + BUDGET * 3 / 8)
    for burst in bursts:
        burst.join()


def test_no_fault_of_the_network_lends_memory_twice_or_fails_a_request(network, tmp_path):
    coordinator = Coordinator(tmp_path, LEAST, BUDGET, "0.0.0.0", network.middle.prefix)
    wire = Wire(coordinator.port, "10.77.1.1", network.middle.call)

    def slow():
        wire.delay = 0.15

        def heal():
            wire.delay = 0
        return heal

    try:
        second_at = f"10.77.2.1:{coordinator.port}"
        with Apart(network.first, *coordinator.options(wire.at)) as first, \
                Apart(network.second, *coordinator.options(second_at)) as second:
            for server in (first, second):
                await_metric(server, "kv_lending_joined", lambda value: value == 1)
            watch = Watch(first, second)
            for fault in (network.cut, network.lose_answers, network.lose_requests, slow):
                part(first, second, fault)
            watch.end()
            state = books(network, coordinator)
            assert sum(loan["bytes"] for loan in state["loans"]) <= BUDGET
            borrowed = [metric(server, "kv_borrowed_bytes") for server in (first, second)]
            assert sum(borrowed) == sum(loan["bytes"] for loan in state["loans"])
        # Both have left: all of it is back.
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while (state := books(network, coordinator))["parties"] or state["loans"]:
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        assert [lease["lent"] for lease in state["leases"]] == [0]
    finally:
        wire.end()
        coordinator.stop()
