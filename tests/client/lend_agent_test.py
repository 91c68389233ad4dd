"""An agent shares KV memory with servers of its machine, and its functions share what it has
(docs/elastic-memory.md)."""

import pytest

from agent_process import Agent, agents_url, write_token
from gateway_test import ADMIN_SECTION, KEYS, NO_GOALS, NOT_IDLE_SOON, gateway, write_config
from lend_fault_test import status
from lend_functions_test import (  # pylint: disable=unused-import
    BUDGET, FUNCTIONS, LEAST, Calls, ask, await_true, fixture_coordinator, process_pss)
from lend_gateway_test import CALLS, NO_QUOTAS
from lend_move_test import pss
from lend_test import MIB, Burst, await_joined
from processes import functions_of
from serving import Server


@pytest.fixture(name="token")
def fixture_token(tmp_path):
    """A file beside the coordinator's token."""
    folder = tmp_path / "agents"
    folder.mkdir()
    return write_token(folder)


@pytest.fixture(name="server")
def fixture_server(tmp_path, token):
    """A gateway with one place of its own."""
    config = write_config(tmp_path, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS, *NO_QUOTAS)
    with gateway(config, "--max-functions", "1", "--agents", "127.0.0.1:0", "--agents-token-file",
                 token, "--agents-expiry", "30") as running:
        yield running


def agent_of(server, token, *options):
    return Agent(agents_url(server), token, "--max-functions", str(FUNCTIONS), *options,
                 memory=None)


def loans(coordinator):
    return {loan["borrower"]: loan["bytes"] for loan in status(coordinator)["loans"]}


def test_bytes_move_between_functions_of_an_agent_and_a_server(coordinator, server, token):
    with agent_of(server, token, *coordinator.options()) as agent, \
            Server(*coordinator.options()) as other:
        agent.await_joined().await_stderr("lends; KV memory is")
        await_joined(other)
        with Server() as plain:
            texts = [ask(plain, index) for index in range(8)]
        # The gateway's own place is taken, so the other tenant's function runs on the agent.
        assert ask(server, 0, {"Authorization": "Bearer " + KEYS["b"]})
        calls = Calls(server, KEYS["a"], CALLS)
        await_true(lambda: functions_of(agent.process.pid), server)
        (first,) = functions_of(agent.process.pid)
        await_true(lambda: process_pss(first) >= 56 * MIB, server)
        assert max(loans(coordinator).values()) >= BUDGET - 4 * MIB
        # A server takes it. The function shrinks, and loses no call.
        before, held = pss(other), process_pss(first)
        burst = Burst(other, 120, 60, lasting=True)
        await_true(lambda: pss(other) >= before + 12 * MIB and
                   process_pss(first) <= held - 6 * MIB, server)
        assert sum(loans(coordinator).values()) <= BUDGET
        burst.join()
        assert calls.join()[:8] == texts
        assert functions_of(agent.process.pid) == [first]
        agent.stop()
    assert loans(coordinator) == {}


def test_functions_of_an_agent_share_memory_without_a_coordinator(server, token):
    with agent_of(server, token, "--kv-cache-memory", f"{LEAST}-{LEAST + BUDGET}",
                  "--max-num-seqs", "256") as agent:
        agent.await_joined()
        assert ask(server, 0, {"Authorization": "Bearer " + KEYS["b"]})
        calls = Calls(server, KEYS["a"], CALLS)
        await_true(lambda: functions_of(agent.process.pid), server)
        (first,) = functions_of(agent.process.pid)
        # It has all but the other place's minimum.
        await_true(lambda: process_pss(first) >= 44 * MIB, server)
        calls.join()
        agent.stop()
