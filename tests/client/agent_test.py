"""`sluice agent` beside `sluice gateway`: where functions run, deaths of either, wrong messages,
and certificates."""

import contextlib
import csv
import os
import signal
import subprocess
import time

import pytest

from agent_process import (TOKEN, Agent, agents_url, call, certificate_options, make_authority,
                           make_certificate, write_token)
from gateway_test import (ADMIN, ADMIN_SECTION, KEYS, NO_GOALS, NOT_IDLE_SOON, CallThatGoesOn, ask,
                          client, gateway, stop_functions, text_of, write_config)
from processes import await_gone, functions_of
from serving import BINARY, LONG_WAIT, PATIENCE

# For tests that wait for the end of a lease: long enough for a machine that does other things.
SHORT = str(min(4 * PATIENCE, 30))


def start(folder, *options, agents="127.0.0.1:0", expiry="30", **more):
    config = write_config(folder, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS)
    return gateway(config, "--max-functions", "1", "--agents", agents, "--agents-token-file",
                   write_token(folder), "--agents-expiry", expiry, *options, **more)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A gateway with one place of its own, and an agent."""
    folder = tmp_path_factory.mktemp("agents")
    with start(folder) as server, \
            Agent(agents_url(server), os.path.join(folder, "token")) as agent:
        agent.await_joined()
        yield server, agent
        agent.stop()


def await_count(pid, count):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while len(functions_of(pid)) != count:
        assert time.monotonic() < deadline, functions_of(pid)
        time.sleep(0.02)


def stop_all(server, agent):
    stop_functions(server)
    await_count(agent.process.pid, 0)


def test_answers_are_the_same_on_both_machines(pair):
    server, agent = pair
    calls = [("a", "poet", {"n": 2, "logprobs": 2, "temperature": 1, "seed": 5}),
             ("b", "pirate", {"guided_regex": "(up|down)[0-9]{2}", "ignore_eos": False}),
             ("b", "demo", {"max_tokens": 40, "stop": ["e"], "ignore_eos": False})]
    seen = []
    for order in (calls, calls[::-1]):
        stop_all(server, agent)
        texts = {}
        for tenant, model, fields in order:
            answer = ask(server, tenant, model, **fields)
            assert answer.status == 200, answer
            texts[model] = answer.json()["choices"]
        # The first has the gateway's place, the others run on the agent.
        assert len(functions_of(server.process.pid)) == 1
        assert len(functions_of(agent.process.pid)) == 2
        seen.append(texts)
    assert seen[0] == seen[1]


def test_calls_on_an_agent_are_billed(pair):
    server, agent = pair
    stop_all(server, agent)
    text_of(ask(server, "a", "demo"))

    def pirate():
        answer = server.get("/v1/usage?format=csv",
                            headers={"Authorization": "Bearer " + KEYS["b"]})
        rows = [row for row in csv.DictReader(answer.text.splitlines())
                if row["function"] == "ft:demo:b:pirate"]
        return (int(rows[0]["requests"]), float(rows[0]["core_seconds"])) if rows else (0, 0)

    before = pirate()
    for _ in range(3):
        text_of(ask(server, "b", "pirate", max_tokens=64))
    assert len(functions_of(agent.process.pid)) == 1
    after = pirate()
    assert after[0] == before[0] + 3
    assert after[1] > before[1]


def test_a_cancelled_stream_ends_on_the_agent(pair):
    server, agent = pair
    stop_all(server, agent)
    text_of(ask(server, "a", "demo"))
    with contextlib.closing(client(server, "b").completions.create(
            model="pirate", prompt="Once", max_tokens=2000, n=8, stream=True,
            extra_body={"ignore_eos": True})) as stream:
        next(iter(stream))
        assert len(functions_of(agent.process.pid)) == 1
    server.await_status(lambda status: not status["requests"])
    text_of(ask(server, "b", "pirate"))


JOIN = {"agent": "two", "key": "k1", "earlier_joins": [], "cores": 1, "turn_cores": 1,
        "memory_bytes": 1 << 30, "max_functions": 1, "backbones": []}


def test_wrong_messages_change_nothing(pair):
    server, agent = pair
    stop_all(server, agent)
    text_of(ask(server, "a", "demo"))
    before = text_of(ask(server, "b", "pirate"))
    process = functions_of(agent.process.pid)
    status, joined = call(server, "join", JOIN)
    assert status == 200, joined
    epoch = joined["epoch"]
    report = {"agent": "two", "epoch": epoch, "sequence": 1, "free_bytes": 0, "draining": False,
              "backbones": [], "adapters": [], "instances": []}
    wrong = [
        (401, "wrong_token", ("join", JOIN, "wrong-0123456789abcdef")),
        (401, "wrong_token", ("report", report, None)),
        (401, "wrong_token", ("backbones", None, "")),
        (400, "bad_request", ("join", {**JOIN, "cores": -1, "key": "k2"})),
        (409, "stale_epoch", ("join", {**JOIN, "earlier_joins": ["k0"], "key": "k2"})),
        (400, "bad_request", ("join", {**JOIN, "memory_bytes": -5, "key": "k2"})),
        (400, "bad_request", ("join", {**JOIN, "max_functions": 0, "key": "k2"})),
        (400, "bad_request", ("join", {**JOIN, "agent": "a/b", "key": "k2"})),
        (400, "bad_request", ("join", {**JOIN, "odd": 1, "key": "k2"})),
        (404, "unknown_name", ("join", {**JOIN, "key": "k2",
                                        "backbones": [{"name": "x", "digest": "y"}]})),
        (400, "bad_request", ("join", {**JOIN, "key": "k2",
                                       "backbones": [{"name": "demo", "digest": "y"}]})),
        (400, "bad_request", ("join", "{")),
        (404, "unknown_agent", ("report", {**report, "agent": "three"})),
        (409, "stale_epoch", ("report", {**report, "epoch": 1})),
        (409, "stale_epoch", ("leave", {"agent": "one", "epoch": epoch})),
        (409, "stale_epoch", ("listen", {"agent": "one", "epoch": epoch})),
        (400, "bad_request", ("report", {**report, "free_bytes": -1})),
        (400, "bad_request", ("report", {**report, "sequence": 7})),
        (400, "bad_request", ("report", {**report, "backbones": [{"name": "demo"}]})),
        (400, "bad_request", ("report", {**report, "backbones": [
            {"name": "demo", "state": "here", "workers": 0, "worker_bytes": 0}]})),
        (404, "unknown_agent", ("report", report)),  # it has opened no stream
        (404, "unknown_path", ("nothing", {})),
        (404, "unknown_name", ("adapters/00", None)),
    ]
    for expected, code, words in wrong:
        status, answer = call(server, *words)
        assert (status, answer["error"]["code"]) == (expected, code), (words, answer)
        assert answer["error"]["message"], words
    # A replay of the other agent's join is that join; a later one fences it.
    assert call(server, "join", JOIN)[1] == joined
    later = call(server, "join", {**JOIN, "key": "k2"})[1]
    assert later["epoch"] > epoch
    assert call(server, "join", JOIN)[1]["error"]["code"] == "stale_epoch"
    assert call(server, "leave", {"agent": "two", "epoch": later["epoch"]})[0] == 200
    assert call(server, "leave", {"agent": "two", "epoch": later["epoch"]})[0] == 404
    # The first agent has noticed nothing.
    assert text_of(ask(server, "b", "pirate")) == before
    assert functions_of(agent.process.pid) == process


def backbone_there(server):
    """The demo backbone on the agent, as the gateway knows it."""
    answer = server.get("/gateway/state", headers={"Authorization": "Bearer " + ADMIN})
    assert answer.status == 200, answer
    agents = answer.json()["machine"]["agents"]
    return agents[0]["backbones"][0] if agents and agents[0]["backbones"] else {"state": "none"}


def await_backbone(server, **wanted):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while not wanted.items() <= (seen := backbone_there(server)).items():
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def started_with(folder, *changes, options=()):
    config = write_config(folder, ADMIN_SECTION, *changes, *NO_GOALS)
    return gateway(config, "--max-functions", "1", "--agents", "127.0.0.1:0",
                   "--agents-token-file", write_token(folder), "--agents-expiry", "30", *options)


def test_an_agent_is_prepared_while_the_gateway_has_no_place(tmp_path):
    with started_with(tmp_path, options=("--warm-workers", "1")) as server, \
            Agent(agents_url(server), str(tmp_path / "token")) as agent:
        agent.await_joined()
        await_backbone(server, state="loaded", workers=0)
        with CallThatGoesOn(server, "a", "demo", machine=server):
            await_backbone(server, state="loaded", workers=1)
            await_count(agent.process.pid, 1)
            worker = functions_of(agent.process.pid)
            time.sleep(1)  # until it is surely ready
            text_of(ask(server, "b", "pirate"))
            stopped = server.post("/gateway/actions", {"action": "stop", "tenant": "b",
                                                       "function": "ft:demo:b:pirate"},
                                  headers={"Authorization": "Bearer " + ADMIN})
            assert stopped.status == 200, stopped
            await_gone(worker)  # it had become pirate
        agent.stop()


def test_an_agent_gets_adapters_before_their_calls_while_the_gateway_has_no_place(tmp_path):
    with started_with(tmp_path) as server, \
            Agent(agents_url(server), str(tmp_path / "token")) as agent:
        agent.await_joined()
        expected = text_of(ask(server, "b", "pirate"))
        stop_functions(server)
        with CallThatGoesOn(server, "a", "demo", machine=server):
            await_backbone(server, state="loaded", adapters=1)
            assert functions_of(agent.process.pid) == []
            assert text_of(ask(server, "b", "pirate")) == expected
            assert len(functions_of(agent.process.pid)) == 1
        agent.stop()


def test_an_agent_gives_idle_backbones_back_and_loads_them_for_a_call(tmp_path):
    with started_with(tmp_path, NOT_IDLE_SOON, ("1GiB", "1MiB")) as server, \
            Agent(agents_url(server), str(tmp_path / "token")) as agent:
        agent.await_joined()
        await_backbone(server, state="absent")
        expected = text_of(ask(server, "b", "pirate"))
        assert len(functions_of(server.process.pid)) == 1
        stop_functions(server)
        with CallThatGoesOn(server, "a", "demo", machine=server):
            assert backbone_there(server)["state"] == "absent"
            assert text_of(ask(server, "b", "pirate")) == expected
            process = functions_of(agent.process.pid)
            assert len(process) == 1
            await_backbone(server, state="loaded")
            # In use it stays, whatever the plan is.
            time.sleep(3)
            assert backbone_there(server)["state"] == "loaded"
            assert text_of(ask(server, "b", "pirate")) == expected
            assert functions_of(agent.process.pid) == process
        stop_functions(server)
        await_backbone(server, state="absent")
        agent.stop()


def test_an_agent_that_dies_takes_its_calls_along_and_its_function_starts_elsewhere(tmp_path):
    with start(tmp_path, expiry=SHORT) as server:
        url, token = agents_url(server), str(tmp_path / "token")
        with Agent(url, token) as agent:
            agent.await_joined()
            text_of(ask(server, "a", "demo"))
            with CallThatGoesOn(server, "b", "pirate", machine=agent, stream=True) as victim:
                agent.kill()
                failed = victim.answer().text
                assert '"error"' in failed and "[DONE]" not in failed, failed
                await_gone([victim.process])
        # It is held until the lease of the dead agent is over, and then runs here.
        text_of(ask(server, "b", "pirate"))
        assert len(functions_of(server.process.pid)) == 1
        # Another process of its name takes part again.
        with Agent(url, token) as agent:
            agent.await_joined()
            text_of(ask(server, "a", "poet"))
            assert len(functions_of(agent.process.pid)) == 1
            agent.stop()


def test_agents_find_a_gateway_that_starts_again(tmp_path):
    with start(tmp_path) as server:
        url, token, port = agents_url(server), str(tmp_path / "token"), server.port
        with Agent(url, token) as agent:
            agent.await_joined()
            text_of(ask(server, "a", "demo"))
            text_of(ask(server, "b", "pirate"))
            before = functions_of(agent.process.pid)
            assert len(before) == 1
            server.expected_status = -signal.SIGKILL
            server.process.send_signal(signal.SIGKILL)
            server.wait()
            await_gone(before)  # nobody speaks for them
            with start(tmp_path, agents=url.removeprefix("http://"), port=port) as again:
                agent.await_joined(2)
                text_of(ask(again, "a", "demo"))
                text_of(ask(again, "b", "pirate"))
                assert len(functions_of(agent.process.pid)) == 1
                agent.stop()


def test_a_later_process_of_the_same_name_replaces_the_first(tmp_path):
    with start(tmp_path) as server:
        url, token = agents_url(server), str(tmp_path / "token")
        with Agent(url, token) as first:
            first.await_joined()
            text_of(ask(server, "a", "demo"))
            text_of(ask(server, "b", "pirate"))
            with Agent(url, token) as second:
                second.await_joined()
                assert first.wait() != 0
                assert "another process" in first.stderr()
                text_of(ask(server, "b", "pirate"))
                assert len(functions_of(second.process.pid)) == 1
                second.stop()


def test_a_stopped_agent_ends_its_functions_when_it_goes_on(tmp_path):
    with start(tmp_path, expiry=SHORT) as server:
        with Agent(agents_url(server), str(tmp_path / "token")) as agent:
            agent.await_joined()
            text_of(ask(server, "a", "demo"))
            expected = text_of(ask(server, "b", "pirate"))
            before = functions_of(agent.process.pid)
            agent.process.send_signal(signal.SIGSTOP)
            # This call goes there, and ends with the lease. The next one is answered here.
            assert ask(server, "b", "pirate").status >= 500
            assert text_of(ask(server, "b", "pirate")) == expected
            assert functions_of(agent.process.pid) == before
            agent.process.send_signal(signal.SIGCONT)
            await_gone(before)
            agent.await_joined(2)
            agent.stop()


def refused_start(*options):
    return subprocess.run([BINARY, *options], capture_output=True, text=True, check=False,
                          timeout=LONG_WAIT * PATIENCE)


def test_other_machines_need_certificates(tmp_path):
    token = write_token(tmp_path)
    config = write_config(tmp_path)
    for listen in ("0.0.0.0:0", "localhost.example:8001"):
        done = refused_start("gateway", "--config", str(config), "--port", "0", "--agents", listen,
                             "--agents-token-file", token, "--usage", str(tmp_path / "usage.db"),
                             "--sandbox", "best-effort")
        assert done.returncode != 0 and "--agents-ssl-certfile" in done.stderr, done.stderr
    for url, text in (("http://192.0.2.1:8001", "https://"),
                      ("https://127.0.0.1:8001", "--ssl-certfile")):
        done = refused_start("agent", "--join", url, "--token-file", token)
        assert done.returncode != 0 and text in done.stderr, done.stderr


def test_both_sides_need_certificates_of_their_authority(tmp_path):
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    for name in ("ours", "theirs"):
        make_authority(certificates, name)
    make_certificate(certificates, "gateway", "ours")
    make_certificate(certificates, "agent", "ours")
    make_certificate(certificates, "expired", "ours", days="-1")
    make_certificate(certificates, "foreign", "theirs")
    with start(tmp_path, *certificate_options(certificates, "gateway", "ours",
                                              "--agents-ssl")) as server:
        url, token = agents_url(server), str(tmp_path / "token")
        assert url.startswith("https://")

        def agent(name, authority="ours"):
            return Agent(url, token, *certificate_options(certificates, name, authority))

        for name, authority, cause in (("expired", "ours", "expired"),
                                       ("foreign", "ours", "unknown ca"),
                                       ("agent", "theirs", "not accepted")):
            with agent(name, authority) as wrong:
                wrong.await_stderr("waiting for the gateway: ")
                wrong.await_stderr(cause)
        with agent("agent") as right:
            right.await_joined()
            text_of(ask(server, "a", "demo"))
            text_of(ask(server, "b", "pirate"))
            assert len(functions_of(right.process.pid)) == 1
            # TLS 1.2, and no certificate at all.
            port = url.rpartition(":")[2]
            for words in (["-tls1_2", "-cert", "agent.pem", "-key", "agent.key"], []):
                done = subprocess.run(
                    ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", "ours.pem",
                     "-ign_eof", *words], cwd=certificates, capture_output=True, text=True,
                    input="GET /v1/agents/backbones HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                          f"{TOKEN}\r\n\r\n", check=False, timeout=LONG_WAIT * PATIENCE)
                assert "alert" in done.stderr and "backbones" not in done.stdout, done
            right.stop()
