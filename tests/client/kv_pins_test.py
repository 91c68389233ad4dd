"""Pinned prefixes: /v1/kv/prefixes computes a prefix and keeps its KV in memory for a time."""

import time

import openai
import pytest

from serving import LONG_WAIT, NAME, PATIENCE, Server

KEYS = {"alice": "sk-alice-1234", "bob": "sk-bob-12345", "carol": "sk-carol-1234",
        "dave": "sk-dave-12345"}
BLOCK = 16
SMALL = ("--kv-cache-memory", "1MiB", "--max-model-len", "512", "--block-size", str(BLOCK))
SYSTEM = [{"role": "system", "content": "You are a helpful cat. " * 24}]
PREFIX = "Once upon a time there was a fox who carried a lantern over the hill to the sea. " * 2


@pytest.fixture(name="server", scope="module")
def fixture_server(tmp_path_factory):
    keys = tmp_path_factory.mktemp("pins") / "keys"
    keys.write_text(f"alice {KEYS['alice']}\nbob {KEYS['bob']} pins=0\n"
                    f"carol {KEYS['carol']} pins=100KiB\ndave {KEYS['dave']} tpm=1\n")
    keys.chmod(0o600)
    with Server(*SMALL, "--api-key-file", str(keys), api_key=KEYS["alice"]) as server:
        yield server


def call(server, method, path, body=None, name="alice"):
    return server.request(method, "/v1/kv/prefixes" + path, body,
                          headers={"Authorization": "Bearer " + KEYS[name]})


def cached(server, messages=None, prompt=None):
    """The tokens of a prompt that were not computed."""
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.api_key or "-") as client:
        if messages:
            answer = client.chat.completions.create(model=NAME, messages=messages, max_tokens=1)
        else:
            answer = client.completions.create(model=NAME, prompt=prompt, max_tokens=1)
    details = answer.usage.prompt_tokens_details
    return details.cached_tokens if details else 0


def complete(server, prompt):
    answer = server.post("/v1/completions", {"model": NAME, "prompt": prompt, "max_tokens": 16,
                                             "ignore_eos": True})
    assert answer.status == 200, answer
    return answer.json()["usage"]


def num_blocks(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("kv_blocks{"))


def fill(server, word):
    """Other traffic that needs the whole cache twice."""
    blocks = num_blocks(server)
    tokens = 0
    number = 0
    while tokens < 2 * BLOCK * blocks:
        number += 1
        usage = complete(server, f"{word} {number}: " + "other words go by " * 16)
        tokens += usage["total_tokens"]


def await_gone(server, name):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while (answer := call(server, "GET", "/" + name)).status == 200:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    assert answer.status == 404, answer


def test_a_pinned_chat_survives_other_traffic(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=KEYS["alice"]) as client:
        pin = client.put("/kv/prefixes/cat", cast_to=object,
                         body={"model": NAME, "messages": SYSTEM, "ttl_seconds": 600})
        tokens = pin["tokens"]
        assert tokens >= 4 * BLOCK and tokens % BLOCK == 0
        assert pin["where"] == "memory" and pin["blocks_in_memory"] == pin["blocks"]
        assert pin["bytes"] > 0 and pin["hits"] == 0
        assert pin["expires_at"] - pin["created_at"] == pytest.approx(600, abs=2)
        turn = [*SYSTEM, {"role": "user", "content": "Hi"}]
        other = [{"role": "system", "content": "You are a helpful dog. " * 24}, turn[1]]
        cached(server, other)
        assert cached(server, other) >= tokens - 2 * BLOCK
        fill(server, "first")
        assert cached(server, other) < tokens - 2 * BLOCK  # it was not pinned
        assert cached(server, turn) >= tokens
        shown = client.get("/kv/prefixes/cat", cast_to=object)
        assert shown["hits"] == 1 and shown["where"] == "memory"
        listed = client.get("/kv/prefixes", cast_to=object)
        assert [entry["id"] for entry in listed["data"]] == ["cat"]
        metrics = server.metrics()
        assert metrics["kv_pins"] == 1 and metrics["kv_pinned_blocks"] == pin["blocks"]
        gone = client.delete("/kv/prefixes/cat", cast_to=object)
        assert gone == {"id": "cat", "object": "kv.prefix", "deleted": True}
        fill(server, "second")
        assert cached(server, turn) < tokens
        with pytest.raises(openai.NotFoundError, match="no pinned prefix"):
            client.get("/kv/prefixes/cat", cast_to=object)
        with pytest.raises(openai.NotFoundError):
            client.delete("/kv/prefixes/cat", cast_to=object)


def test_a_put_creates_renews_and_replaces(server):
    body = {"model": NAME, "prompt": PREFIX * 2, "ttl_seconds": 60}
    made = call(server, "PUT", "/story", body)
    assert made.status == 201, made
    assert cached(server, prompt=PREFIX * 2) > 0
    assert call(server, "GET", "/story").json()["hits"] == 1
    renewed = call(server, "PUT", "/story", {**body, "ttl_seconds": 4000})
    assert renewed.status == 200 and renewed.json()["hits"] == 1
    assert renewed.json()["expires_at"] > made.json()["expires_at"] + 3000
    assert renewed.json()["created_at"] == pytest.approx(made.json()["created_at"], abs=2)
    replaced = call(server, "PUT", "/story", {**body, "prompt": "Another story. " * 8})
    assert replaced.status == 200 and replaced.json()["hits"] == 0
    assert replaced.json()["tokens"] != made.json()["tokens"]
    assert call(server, "DELETE", "/story").status == 200


def test_a_pin_expires(server):
    assert call(server, "PUT", "/short", {"model": NAME, "prompt": PREFIX,
                                          "ttl_seconds": 1}).status == 201
    await_gone(server, "short")
    assert call(server, "GET", "").json()["data"] == []


def test_tenants_have_their_own_pins_and_quotas(server):
    body = {"model": NAME, "prompt": PREFIX}
    assert call(server, "PUT", "/mine", body).status == 201
    for method in ("GET", "DELETE"):
        answer = call(server, method, "/mine", name="carol")
        assert answer.status == 404 and answer.error()["code"] == "prefix_not_found"
    assert call(server, "GET", "", name="carol").json() == {"object": "list", "data": []}
    assert call(server, "GET", "/mine").json()["hits"] == 0
    refused = call(server, "PUT", "/mine", body, name="bob")
    assert refused.status == 400 and "of the 0 that this key may pin" in refused.error()["message"]
    made = call(server, "PUT", "/mine", body, name="carol")
    assert made.status == 201
    # It renews its own pin, and has no room for a second one.
    longer = {**body, "prompt": "A longer story. " * 16}
    refused = call(server, "PUT", "/more", longer, name="carol")
    assert refused.status == 429, refused
    assert f"need {made.json()['bytes']} of the 102400" in refused.error()["message"]
    # The tokens of a prompt count, too: a longer one than a minute's overdraws them.
    assert call(server, "PUT", "/mine", body, name="dave").status == 201
    refused = call(server, "PUT", "/mine", body, name="dave")
    assert refused.status == 429 and "tokens a minute" in refused.error()["message"], refused
    assert call(server, "GET", "/mine", name="carol").json()["tokens"] == made.json()["tokens"]
    for name in ("alice", "carol", "dave"):
        assert call(server, "DELETE", "/mine", name=name).status == 200
    assert server.get("/v1/kv/prefixes", headers={"Authorization": "Bearer no"}).status == 401


def test_all_pins_together_have_a_limit(server):
    body = {"model": NAME}
    made = []
    for number in range(100):
        answer = call(server, "PUT", f"/p{number}", {**body, "prompt": f"{number}: " + PREFIX * 3})
        if answer.status != 201:
            break
        made.append(answer.json())
    assert answer.status == 429 and "--pin-limit" in answer.error()["message"], answer
    pinned = sum(pin["blocks"] for pin in made)
    assert 0 < pinned <= num_blocks(server) / 4
    # A request that needs nearly all memory runs nevertheless.
    assert complete(server, "x" * 480)["completion_tokens"] == 16
    for pin in made:
        assert call(server, "DELETE", "/" + pin["id"]).status == 200


def test_wrong_calls_are_named(server):
    good = {"model": NAME, "prompt": PREFIX}
    for path, body, field in (
            ("/" + "a" * 65, good, "id"), ("/.hidden", good, "id"), ("/a%20b", good, "id"),
            ("/a", {"model": NAME}, "messages"), ("/a", {"prompt": PREFIX}, "model"),
            ("/a", {**good, "ttl_seconds": 0}, "ttl_seconds"),
            ("/a", {**good, "ttl_seconds": 10**9}, "ttl_seconds"),
            ("/a", {**good, "messages": SYSTEM}, "prompt"),
            ("/a", {**good, "prompt": ["a", "b"]}, "prompt")):
        answer = call(server, "PUT", path, body)
        assert answer.status == 400, (path, body, answer)
        assert field in answer.error()["message"], answer
    short = call(server, "PUT", "/a", {**good, "prompt": "Hi"})
    assert short.status == 400 and "KV block of 16" in short.error()["message"]
    assert call(server, "PUT", "/a", {**good, "model": "other"}).status == 404
    answer = call(server, "POST", "/a", good)
    assert answer.status == 405 and answer.headers["allow"] == "PUT, GET, HEAD, DELETE"
    assert call(server, "GET", "/a").status == 404


def test_without_a_prefix_cache_pins_are_refused_by_name():
    with Server("--no-enable-prefix-caching") as server:
        for method, path, body in (("PUT", "/a", {"model": NAME, "prompt": PREFIX}),
                                   ("GET", "/a", None), ("GET", "", None), ("DELETE", "/a", None)):
            answer = server.request(method, "/v1/kv/prefixes" + path, body)
            assert answer.status == 501 and "prefix cache" in answer.error()["message"], answer


def test_a_pinned_prefix_goes_to_the_disk_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    disk = ("--kv-disk", f"{tmp_path}/kv:64MiB", *SMALL)
    with Server(*disk) as server:
        made = server.request("PUT", "/v1/kv/prefixes/a", {"model": NAME, "prompt": PREFIX})
        assert made.status == 201, made
        tokens = made.json()["tokens"]
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while server.metrics()["kv_tier_blocks_saved_total"] < made.json()["blocks"]:
            assert time.monotonic() < deadline, server.metrics()
            time.sleep(0.01)
    with Server(*disk) as server:
        assert server.get("/v1/kv/prefixes").json()["data"] == []  # pins end with the server
        assert cached(server, prompt=PREFIX + "And then") >= tokens
