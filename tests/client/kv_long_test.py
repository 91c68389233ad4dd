"""Prompts whose KV exceeds the memory: it is streamed from --kv-disk DIR:SIZE,stream=SIZE."""

import os
import signal
import threading

import pytest

from raw_socket import RawClient, post
from serving import NAME, Server

# 1,184 tokens of KV; two windows of the long prompts leave 288 of them to others.
SMALL = ["--kv-cache-memory", "1200KiB"]


def long_prompt(seed):
    return [(seed + 7 * i) % 2900 + 100 for i in range(1700)]


def body(prompt, max_tokens=24):
    return {"model": NAME, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
            "ignore_eos": True}


def complete(server, prompt, max_tokens=24):
    answer = server.post("/v1/completions", body(prompt, max_tokens))
    assert answer.status == 200, answer.body
    return answer.json()["choices"][0]["text"]


@pytest.fixture(name="folder")
def fixture_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "kv"


@pytest.fixture(name="wanted", scope="module")
def fixture_wanted():
    prompts = [long_prompt(1), long_prompt(2), "Once there was a fox", "A boat"]
    with Server() as plain:
        return [(prompt, complete(plain, prompt)) for prompt in prompts]


def start(folder, *options, expected_status=0, api_key=None):
    return Server("--kv-disk", f"{folder}:64MiB,stream=32MiB,free=1MiB", *SMALL, *options,
                  expected_status=expected_status, api_key=api_key)


def test_long_prompts_run_beside_others(folder, wanted):
    with start(folder) as server:
        assert "sequences that need more than the KV memory are streamed" in server.stderr()
        texts = {}

        def run(index):
            texts[index] = complete(server, wanted[index % len(wanted)][0])

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2 * len(wanted))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts == {i: wanted[i % len(wanted)][1] for i in range(2 * len(wanted))}
        metrics = server.metrics()
        assert metrics["kv_stream_bytes_loaded_total"] > metrics["kv_stream_bytes_saved_total"] > 0
        # The file of a stream has no name in the folder.
        names = {name for name in os.listdir(folder) if not name.endswith(".segment")}
        assert names <= {"lock", "written"}, names


def turn(server, prompt, key=None, **more):
    """The tokens of an answer, and how many of the prompt were not computed."""
    headers = {"headers": {"Authorization": f"Bearer {key}"}} if key else {}
    answer = server.post("/v1/completions",
                         {**body(prompt), "return_token_ids": True, **more}, **headers)
    assert answer.status == 200, answer.body
    answer = answer.json()
    return (answer["choices"][0]["token_ids"],
            answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_the_next_turn_is_read_from_the_disk_also_after_a_restart(folder):
    first = long_prompt(3)
    with start(folder) as server:
        said, cached = turn(server, first)
        assert cached == 0
        second = first + said + [200, 201, 202]
        answer, cached = turn(server, second)
        # All whole blocks but that of the last token, which is not computed.
        assert cached == (len(first) + len(said) - 1) // 16 * 16, cached
        third = second + answer + [203, 204]
        memory_only, cached = turn(server, long_prompt(4), prompt_cache_retention="in_memory")
        assert cached == 0
    with Server() as plain:
        assert turn(plain, second)[0] == answer
        wanted, _ = turn(plain, third)
        assert turn(plain, long_prompt(4))[0] == memory_only
    with start(folder) as server:
        assert turn(server, third, cache_salt="other") == (wanted, 0)
        again, cached = turn(server, third)
        assert again == wanted
        assert cached == (len(second) + len(answer) - 1) // 16 * 16, cached
        assert turn(server, long_prompt(4)) == (memory_only, 0)
        metrics = server.metrics()
        assert metrics["kv_tier_hit_tokens_total"] == cached
        assert metrics["kv_tier_failures_total"] == 0


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_tenant_never_reads_the_long_chat_of_another(folder, encrypted):
    """Neither its whole prompt nor its beginning, which is no streamed request."""
    keys = folder.parent / "keys"
    keys.write_text("alice sk-alice-00001\nbob sk-bob-0000001\nbob sk-bob-0000002\n"
                    "carol sk-carol-00001\n")
    options = ["--api-key-file", str(keys)]
    if encrypted:
        secret = folder.parent / "secret"
        secret.write_text("5" * 64)
        secret.chmod(0o600)
        options += ["--kv-disk-key", str(secret)]
    alice, bob, bob_too = "sk-alice-00001", "sk-bob-0000001", "sk-bob-0000002"
    carol = "sk-carol-00001"
    prompt = long_prompt(5)
    beginning = prompt[:200]
    whole = (len(prompt) - 1) // 16 * 16
    with start(folder, *options, api_key=alice) as server:
        wanted, cached = turn(server, prompt, alice)
        assert cached == 0
        assert turn(server, beginning, carol)[1] == 0
        assert turn(server, prompt, bob) == (wanted, 0)
        assert turn(server, prompt, alice, cache_salt="alice's own") == (wanted, 0)
    with start(folder, *options, api_key=alice) as server:
        for key in [alice, bob_too]:
            assert turn(server, prompt, key) == (wanted, whole), key
        assert turn(server, prompt, alice, cache_salt="alice's own") == (wanted, whole)
        # The salt of another tenant is not its key.
        assert turn(server, beginning, carol, cache_salt="alice's own")[1] == 0
        assert turn(server, prompt, bob, cache_salt="alice's own") == (wanted, 0)


def test_a_client_that_leaves_and_a_server_that_is_killed(folder, wanted):
    prompt, text = wanted[0]
    with start(folder, expected_status=-signal.SIGKILL) as server:
        client = RawClient(server)
        with client:
            client.send(post("/v1/completions", {**body(prompt, 300), "stream": True}))
            client.response_head()
            client.chunk()
        assert complete(server, prompt) == text
        client = RawClient(server)
        with client:
            client.send(post("/v1/completions", {**body(prompt, 300), "stream": True}))
            client.response_head()
            client.chunk()
            server.process.kill()
            server.process.wait()
    with start(folder) as server:
        assert complete(server, prompt) == text


def test_without_room_it_is_refused(folder, wanted):
    with Server(*SMALL) as server:
        answer = server.post("/v1/completions", body(wanted[0][0]))
        assert answer.status == 400 and b"KV memory has 74" in answer.body, answer.body
        assert b"context_length_exceeded" in answer.body, answer.body
        # Both ways to learn of it name the option.
        assert b"--kv-disk DIR:SIZE,stream=SIZE" in answer.body, answer.body
        assert "give --kv-disk DIR:SIZE,stream=SIZE or lower" in server.stderr()
    with start(folder) as server:
        answer = server.post("/v1/completions", {**body(wanted[0][0]), "n": 2})
        assert answer.status == 400 and b"n above 1" in answer.body, answer.body
        assert b"context_length_exceeded" in answer.body, answer.body
    with Server("--kv-disk", f"{folder}:64MiB,stream=1MiB,free=1MiB", *SMALL) as server:
        answer = server.post("/v1/completions", body(wanted[0][0]))
        assert answer.status == 400 and b"stream=SIZE" in answer.body, answer.body
