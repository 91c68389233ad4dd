"""Networks that fail between a gateway and its agent
(docs/gateway-machines.md#leases-and-epochs): each has a network namespace of its
own, and the link between them is cut, or loses one direction.

Leases end on a loaded machine, so ctest does not run it: make campaign NAME=agent-partition, as
root.
"""

import time

import pytest

from agent_process import Agent, certificate_options, make_authority, make_certificate, write_token
from gateway_test import (ADMIN_SECTION, KEYS, NO_GOALS, NOT_IDLE_SOON, ask, stop_functions,
                          text_of, write_config)
from network import Apart, a_network
from processes import await_gone, functions_of
from serving import LONG_WAIT, PATIENCE, free_port

EXPIRY = 5 * PATIENCE


@pytest.fixture(name="network")
def fixture_network():
    with a_network() as network:
        yield network


def certificates_in(folder):
    make_authority(folder, "ours")
    make_certificate(folder, "gateway", "ours", address="10.77.1.1")
    make_certificate(folder, "agent", "ours", address="10.77.1.2")


def a_gateway(network, folder, port):
    config = write_config(folder, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS)
    return Apart(network.middle, "--config", str(config), "--sandbox", "best-effort",
                 "--kv-cache-memory", "64MiB", "--usage", str(folder / "usage.db"),
                 "--max-functions", "1", "--agents", f"10.77.1.1:{port}", "--agents-token-file",
                 write_token(folder), "--agents-expiry", str(EXPIRY),
                 *certificate_options(folder, "gateway", "ours", prefix="--agents-ssl"),
                 model=None, command="gateway", api_key=KEYS["a"])


def part(server, agent, fault, joined):
    """One fault and its end, while a function runs on the agent."""
    stop_functions(server)
    await_gone(functions_of(agent.process.pid))
    text_of(ask(server, "a", "demo"))  # it has the gateway's own place
    expected = text_of(ask(server, "b", "pirate"))
    process = functions_of(agent.process.pid)
    assert len(process) == 1
    heal = fault()
    began = time.monotonic()
    # The call goes to the agent and ends at the latest with the lease.
    assert ask(server, "b", "pirate").status >= 500
    assert time.monotonic() - began < EXPIRY + LONG_WAIT * PATIENCE
    # The gateway's machine answers the next one, once the agent has surely ended the function.
    assert text_of(ask(server, "b", "pirate")) == expected
    assert functions_of(agent.process.pid) == []
    assert len(functions_of(server.process.pid)) == 1
    heal()
    agent.await_joined(joined)
    stop_functions(server)
    text_of(ask(server, "a", "demo"))
    assert text_of(ask(server, "b", "pirate")) == expected
    assert len(functions_of(agent.process.pid)) == 1


def test_no_fault_of_the_network_runs_a_function_twice_or_holds_a_call(network, tmp_path):
    certificates_in(tmp_path)
    port = free_port()
    with a_gateway(network, tmp_path, port) as server, \
            Agent(f"https://10.77.1.1:{port}", str(tmp_path / "token"),
                  *certificate_options(tmp_path, "agent", "ours"),
                  prefix=network.first.prefix) as agent:
        agent.await_joined()
        faults = (network.cut, network.lose_answers, network.lose_requests)
        for number, fault in enumerate(faults):
            part(server, agent, fault, number + 2)
        agent.stop()
