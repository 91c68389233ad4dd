"""A server that keeps KV blocks in memory of another server (docs/elastic-memory.md)."""

import os
import signal
import subprocess
import time

import pytest
from lend_fault_test import status
from lend_test import LEAST, MIB, Burst, Coordinator, await_metric
from serving import BINARY, LONG_WAIT, MODEL, NAME, PATIENCE, Server

LENT = 16 * MIB
PROMPTS = [[10 + index] * 400 + [index] for index in range(20)]  # together twice the borrower's KV


@pytest.fixture(name="coordinator")
def fixture_coordinator(tmp_path):
    running = Coordinator(tmp_path)
    yield running
    running.stop()


def lender(coordinator, expected_status=0):
    return Server(*coordinator.options(), "--lend-pages", str(LENT),
                  expected_status=expected_status)


def borrower(coordinator, expected_status=0):
    options = coordinator.options()
    options[options.index("--kv-cache-memory") + 1] = f"{LEAST}-{LEAST}"
    return Server(*options, "--borrow-pages", str(LENT), expected_status=expected_status)


def texts(server):
    answers = []
    for prompt in PROMPTS:
        answer = server.post("/v1/completions", {"model": NAME, "prompt": prompt, "max_tokens": 8,
                                                 "temperature": 0, "ignore_eos": True})
        assert answer.status == 200, answer.body
        answers.append(answer.json()["choices"][0]["text"])
    return answers


def await_lent(lends, borrows):
    await_metric(borrows, "kv_pages_borrowed_bytes", lambda value: value == LENT)
    await_metric(lends, "kv_pages_lent_bytes", lambda value: value == LENT)


def await_status(coordinator, test):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while not test(state := status(coordinator)):
        assert time.monotonic() < deadline, state
        time.sleep(0.02)


def await_loads(server, expected):
    """Until blocks have come back. A server that finds computing faster tries it now and then."""
    before = server.metrics()["kv_tier_blocks_loaded_total"]
    while server.metrics()["kv_tier_blocks_loaded_total"] == before:
        assert texts(server) == expected


def test_blocks_come_back_and_a_stopped_borrower_delays_nobody(coordinator):
    with lender(coordinator) as lends, borrower(coordinator) as borrows:
        await_lent(lends, borrows)
        assert lends.metrics()["kv_limit_bytes"] == LEAST
        expected = texts(borrows)
        await_loads(borrows, expected)
        with borrows.stopped():
            burst = Burst(lends, 40, 200, lasting=True)
            await_metric(lends, "kv_pages_lent_bytes", lambda value: value == 0)
            await_metric(lends, "kv_limit_bytes", lambda value: value >= LEAST + LENT)
            burst.join()
        assert lends.metrics()["kv_pages_revoked_total"] > 0
        assert texts(borrows) == expected
        # The lender is calm again, and lends again.
        await_lent(lends, borrows)
        await_loads(borrows, expected)


def test_servers_that_are_killed(coordinator):
    with lender(coordinator) as lends:
        with borrower(coordinator, expected_status=-signal.SIGKILL) as victim:
            await_lent(lends, victim)
            expected = texts(victim)
            victim.process.kill()
            victim.process.wait()
        await_metric(lends, "kv_pages_lent_bytes", lambda value: value == 0)
    with borrower(coordinator) as borrows:
        with lender(coordinator, expected_status=-signal.SIGKILL) as victim:
            await_lent(victim, borrows)
            assert texts(borrows) == expected
            victim.process.kill()
            victim.process.wait()
        await_metric(borrows, "kv_pages_borrowed_bytes", lambda value: value == 0)
        assert texts(borrows) == expected
        with lender(coordinator) as later:
            await_lent(later, borrows)
            await_loads(borrows, expected)


def test_a_borrower_that_dies_beside_a_stopped_lender_leaves_nothing_behind(coordinator):
    with lender(coordinator) as lends:
        with borrower(coordinator, expected_status=-signal.SIGKILL) as victim:
            await_lent(lends, victim)
            texts(victim)
            with lends.stopped():  # it reads nothing, and hears of nothing
                victim.process.kill()
                victim.process.wait()
                # Both are silent for longer than an expiry, so the coordinator forgets them.
                await_status(coordinator, lambda state: not state["parties"])
        await_metric(lends, "kv_pages_lent_bytes", lambda value: value == 0)
        await_status(coordinator, lambda state: not state["loans"])
        with borrower(coordinator) as later:
            await_lent(lends, later)
            later_texts = texts(later)
            await_loads(later, later_texts)


def test_a_lender_that_dies_beside_a_stopped_borrower_leaves_nothing_behind(coordinator):
    with borrower(coordinator) as borrows:
        with lender(coordinator, expected_status=-signal.SIGKILL) as victim:
            await_lent(victim, borrows)
            expected = texts(borrows)
            with borrows.stopped():
                victim.process.kill()
                victim.process.wait()
                await_status(coordinator, lambda state: not state["parties"])
        # It goes on with memory that has no lender any more.
        assert texts(borrows) == expected
        await_metric(borrows, "kv_pages_borrowed_bytes", lambda value: value == 0)
        await_status(coordinator, lambda state: not state["loans"] and
                     [lease["lease"] for lease in state["leases"]] == ["budget/cpu"])
        with lender(coordinator) as later:
            await_lent(later, borrows)
            await_loads(borrows, expected)


def test_options_that_do_not_go_together(coordinator):
    def refused(*options):
        got = subprocess.run([BINARY, "serve", MODEL, *options], capture_output=True, text=True,
                             timeout=LONG_WAIT * PATIENCE, check=False)
        assert got.returncode == 2, got.stderr
        return got.stderr

    lend = coordinator.options()
    assert "need --lend URL" in refused("--lend-pages", "1MiB")
    assert "need --lend URL" in refused("--borrow-pages", "1MiB")
    assert "exclude each other" in refused(*lend, "--lend-pages", "1MiB", "--borrow-pages", "1MiB")
    assert "MAX less MIN" in refused(*lend, "--lend-pages", "1GiB")
    assert "--lend-pages" in refused(*lend, "--lend-pages", "-1")
    assert "one tier" in refused(*lend, "--borrow-pages", "1MiB", "--kv-disk", "kv:1MiB")
    assert "prefix cache" in refused(*lend, "--borrow-pages", "1MiB",
                                     "--no-enable-prefix-caching")
    assert "--lend-device must be 1 to 64 letters" in refused(*lend, "--lend-device", "a b")
    assert "MIN is above MAX" in refused("--kv-cache-memory", "2MiB-1MiB")
    if not os.path.exists("/dev/nvidiactl"):
        assert "--lend-pages: cuda:0: " in refused_at_load(*lend, "--device", "cuda:0",
                                                           "--lend-pages", "16MiB")
    small = refused_at_load(*lend, "--borrow-pages", "1KiB")
    assert "--borrow-pages" in small and "no room for a block" in small


def refused_at_load(*options):
    got = subprocess.run([BINARY, "serve", MODEL, "--port", "0", *options], capture_output=True,
                         text=True, timeout=LONG_WAIT * PATIENCE, check=False)
    assert got.returncode == 1, got.stderr
    return got.stderr
