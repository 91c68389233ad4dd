"""Where the memory is that servers lend: in their processes, and while one of them is stopped."""

import time

import pytest
from lend_test import MIB, Burst, Coordinator, await_joined, await_metric, metric
from serving import LONG_WAIT, PATIENCE, Server

LEAST, BUDGET = 16 * MIB, 32 * MIB  # KV memory grows by 16 MiB


@pytest.fixture(name="coordinator")
def fixture_coordinator(tmp_path):
    running = Coordinator(tmp_path, LEAST, BUDGET)
    yield running
    running.stop()


def pss(server):
    """Bytes of memory that are the process's, as the kernel counts them."""
    with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no Pss")


def await_state(test, *servers):
    deadline = time.monotonic() + 2 * LONG_WAIT * PATIENCE
    while not test():
        assert time.monotonic() < deadline, [(pss(server), server.stderr()) for server in servers]
        time.sleep(0.02)


def test_moved_bytes_show_in_both_processes(coordinator):
    with Server(*coordinator.options()) as first, Server(*coordinator.options()) as second:
        await_joined(first)
        await_joined(second)
        before = {server: pss(server) for server in (first, second)}
        burst = Burst(first, 120, 60, lasting=True)
        await_state(lambda: pss(first) >= before[first] + 32 * MIB, first)
        burst.join()
        full = pss(first)
        burst = Burst(second, 120, 60, lasting=True)
        await_state(lambda: pss(second) >= before[second] + 32 * MIB and
                    pss(first) <= full - 12 * MIB, first, second)
        burst.join()
        assert metric(first, "kv_recalls_total") > 0


def test_a_stopped_server_does_not_keep_the_budget(coordinator):
    with Server(*coordinator.options()) as stops, Server(*coordinator.options()) as other:
        await_joined(stops)
        await_joined(other)
        burst = Burst(stops, 120, 60, lasting=True)
        await_metric(stops, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
        with stops.stopped():
            second = Burst(other, 120, 60, lasting=True)
            # The coordinator forgets the one that is silent.
            await_metric(other, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
        second.join()
        burst.join()
