"""KV memory that shrinks while its control group's memory is short (docs/elastic-memory.md)."""

import os
import time

import pytest
import serving
from control_group import make_group
from lend_test import MIB, await_metric
from serving import LONG_WAIT, NAME, PATIENCE, Server

LEAST, MOST = 4 * MIB, 256 * MIB


@pytest.fixture(name="group")
def fixture_group(tmp_path, monkeypatch):
    made, script = make_group(tmp_path, f'"{os.path.abspath(serving.BINARY)}"')
    monkeypatch.setattr(serving, "BINARY", script)
    yield made
    made.remove()


def answer(server, index):
    body = {"model": NAME, "prompt": [10 + index % 50] * 900 + [index], "max_tokens": 4,
            "temperature": 0, "ignore_eos": True}
    got = server.post("/v1/completions", body)
    assert got.status == 200, got.body
    return got.json()["choices"][0]["text"]


def await_limit(server):
    """Until the server has looked at the system for the first time, and at most MOST."""
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while server.metrics().get("kv_limit_bytes") != MOST:
        assert time.monotonic() < deadline, server.stderr()
        time.sleep(0.02)


def test_kv_memory_gives_way_and_grows_back(group):
    with Server("--kv-cache-memory", f"{LEAST}-{MOST}") as server:
        await_limit(server)
        before = group.used()
        expected = [answer(server, index) for index in range(70)]
        grown = group.used()
        assert grown > before + 32 * MIB
        # No swap, and no more than the group has: the kernel would kill the server soon.
        group.set_limit(grown + 8 * MIB)
        await_metric(server, "kv_memory_pressed", lambda value: value == 1)
        while group.used() > grown - 20 * MIB:
            # An answer that needs memory does not wait for it, and does not fail.
            assert answer(server, 3) == expected[3]
        assert server.metrics()["kv_limit_bytes"] >= LEAST
        assert [answer(server, index) for index in range(0, 70, 7)] == expected[::7]
        group.set_limit(group.none)
        await_limit(server)
        assert server.metrics()["kv_memory_pressed"] == 0
        assert "short of memory" in server.stderr() and "has memory again" in server.stderr()


def test_requests_must_fit_the_minimum():
    with Server("--kv-cache-memory", f"{MIB // 2}-{MOST}") as server:
        body = {"model": NAME, "prompt": [10] * 900, "max_tokens": 4}
        refused = server.post("/v1/completions", body)
        error = refused.json()["error"]
        assert refused.status == 400 and error["code"] == "context_length_exceeded", error
        assert "--kv-cache-memory" in error["message"], error
        assert server.complete("x", max_tokens=4)
