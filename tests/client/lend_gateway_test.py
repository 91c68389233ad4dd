"""A gateway shares KV memory with other servers, and its functions share what it has
(docs/elastic-memory.md)."""

import subprocess
import time

import pytest

from gateway_test import ADMIN_SECTION, KEYS, NO_GOALS, NOT_IDLE_SOON, write_config
from lend_functions_test import (  # pylint: disable=unused-import
    BUDGET, FUNCTIONS, LEAST, Calls, ask, await_true, fixture_coordinator, functions_pss,
    process_pss)
from lend_move_test import pss
from lend_test import MIB, Burst, await_joined, await_metric, metric
from processes import functions_of
from serving import BINARY, LONG_WAIT, PATIENCE, Server

CALLS = 90  # fewer than may wait for a function that starts
# Each tenant may send as many calls as the test needs.
NO_QUOTAS = (("requests_per_minute = 600\ntokens_per_minute = 100_000\nconcurrency = 8\n"
              "money_per_day = 1.50\n", ""), ("requests_per_minute = 600\n", ""))


@pytest.fixture(name="config")
def fixture_config(tmp_path):
    return write_config(tmp_path, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS, *NO_QUOTAS)


def lending_gateway(config, lend):
    return Server("--config", str(config), "--sandbox", "best-effort", "--usage",
                  str(config.parent / "usage.db"), "--max-functions", str(FUNCTIONS), *lend,
                  model=None, command="gateway", api_key=KEYS["a"])


def calls_of(server, tenant):
    return Calls(server, KEYS[tenant], CALLS)


def test_bytes_move_between_functions_of_a_gateway_and_a_server(coordinator, config):
    with lending_gateway(config, coordinator.options()) as server, \
            Server(*coordinator.options()) as other:
        await_joined(server)
        await_joined(other)
        with Server() as plain:
            texts = [ask(plain, index) for index in range(8)]
        # A function gets what the gateway borrows.
        first_calls = calls_of(server, "a")
        await_true(lambda: functions_of(server.process.pid), server)
        (first,) = functions_of(server.process.pid)
        await_metric(server, "kv_borrowed_bytes", lambda value: value >= BUDGET - 4 * MIB)
        await_true(lambda: process_pss(first) >= 56 * MIB, server)
        assert metric(server, "kv_limit_bytes") <= LEAST + BUDGET
        assert first_calls.join()[:8] == texts
        # It is idle now, so it gives to another tenant's function without that asking for more.
        full = process_pss(first)
        second_calls = calls_of(server, "b")
        await_true(lambda: len(functions_of(server.process.pid)) == 2, server)
        (second,) = set(functions_of(server.process.pid)) - {first}
        await_true(lambda: process_pss(second) >= 56 * MIB and
                   process_pss(first) <= full - 20 * MIB, server)
        # A server takes it. The idle function has nothing left to give, so the busy one shrinks,
        # and loses no call.
        before, held = pss(other), sum(functions_pss(server).values())
        burst = Burst(other, 120, 60, lasting=True)
        await_true(lambda: pss(other) >= before + 24 * MIB and
                   sum(functions_pss(server).values()) <= held - 6 * MIB, server)
        await_metric(server, "kv_borrowed_bytes", lambda value: value <= BUDGET / 2)
        assert second_calls.join()[:8] == texts
        burst.join()
        assert metric(server, "kv_recalls_total") > 0
        assert functions_of(server.process.pid) == sorted((first, second))


def test_without_a_coordinator_a_gateway_has_its_minimum(coordinator, config):
    with lending_gateway(config, coordinator.options()) as server:
        await_joined(server)
        calls = calls_of(server, "a")
        await_metric(server, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
        coordinator.stop()
        await_metric(server, "kv_limit_bytes", lambda value: value == LEAST)
        await_true(lambda: sum(functions_pss(server).values()) < LEAST + 12 * MIB, server)
        calls.join()
        assert metric(server, "kv_lending_joined") == 0
        assert f"serving with the minimum of {LEAST // MIB} MiB" in server.stderr()
        coordinator.start()
        await_joined(server)
        again = calls_of(server, "b")
        await_metric(server, "kv_limit_bytes", lambda value: value > LEAST + BUDGET / 2)
        again.join()


def test_functions_share_memory_without_a_coordinator(config):
    bounds = f"{LEAST}-{LEAST + BUDGET}"
    with lending_gateway(config, ["--kv-cache-memory", bounds, "--max-num-seqs", "256"]) as server:
        calls = calls_of(server, "a")
        await_true(lambda: functions_of(server.process.pid), server)
        (first,) = functions_of(server.process.pid)
        # One process has all but the other's minimum.
        await_true(lambda: process_pss(first) >= 44 * MIB, server)
        calls.join()
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while metric(server, "kv_limit_bytes") != LEAST + BUDGET:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("options, said", [
    (["--lend", "http://127.0.0.1:1"], "--lend needs --kv-cache-memory MIN-MAX"),
    (["--lend", "http://127.0.0.1:1", "--kv-cache-memory", "32MiB-64MiB"],
     "--lend needs --lend-token-file"),
    (["--lend-device", "cpu"], "need --lend URL"),
    (["--kv-cache-memory", "64MiB-32MiB"], "MIN is above MAX"),
    (["--lend-pages", "16MiB"], "--lend-pages"),
    (["--lend", "nowhere", "--lend-token-file", "/nonexistent", "--kv-cache-memory",
      "32MiB-64MiB"], "--lend: 'nowhere': it does not begin with"),
])
def test_options_that_are_refused(config, options, said):
    done = subprocess.run([BINARY, "gateway", "--config", str(config), "--port", "0", *options],
                          capture_output=True, text=True, check=False,
                          timeout=LONG_WAIT * PATIENCE)
    assert done.returncode in (2, 109), done
    assert said in done.stderr
