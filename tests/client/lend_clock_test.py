"""Two servers and their coordinator while the wall clock jumps by days (docs/elastic-memory.md):
memory moves as before, no party expires, no request fails."""

import time

from jumping_clock import JumpingClock, needs_faketime
from lend_fault_test import status
from lend_move_test import await_state
from lend_test import MIB, Burst, Coordinator, await_metric
from serving import NAME, Server

LEAST, BUDGET = 4 * MIB, 24 * MIB
HALF_OF_ALL = (2 * LEAST + BUDGET) / 2
DAY = 24 * 3600


def days_off(server):
    """By how many days the server's clock differs from the real one."""
    answer = server.post("/v1/completions", {"model": NAME, "prompt": [7] * 9, "max_tokens": 1})
    assert answer.status == 200, answer
    return round((answer.json()["created"] - time.time()) / DAY)


def epochs(coordinator):
    return {party["party"]: party["epoch"] for party in status(coordinator)["parties"]}


@needs_faketime
def test_jumps_of_the_clock_change_nothing(tmp_path):
    clock = JumpingClock(tmp_path)
    # An expiry that no load of the machine reaches: a party that expires has seen the jump.
    coordinator = Coordinator(tmp_path, LEAST, BUDGET, prefix=clock.prefix, expiry=20)
    try:
        with Server(*coordinator.options(), prefix=clock.prefix) as first, \
                Server(*coordinator.options(), prefix=clock.prefix) as second:
            for process in (coordinator.process, first.process, second.process):
                assert clock.is_used_by(process)
            for server in (first, second):
                await_metric(server, "kv_lending_joined", lambda value: value == 1)
            before = epochs(coordinator)
            assert len(before) == 2
            busy, other = first, second
            for days in (1, -1, 400, 0):
                burst = Burst(busy, 120, 20, lasting=True)
                clock.jump(f"{days:+}d")
                for server in (first, second):
                    await_state(lambda at=server: days_off(at) == days, server)
                await_metric(busy, "kv_limit_bytes", lambda value: value > HALF_OF_ALL)
                burst.join()
                busy, other = other, busy
            assert epochs(coordinator) == before
    finally:
        coordinator.stop()
