"""A chat whose blocks go from memory to RAM and to the disk, and come back from each: --kv-ram
before --kv-disk. Which tier had them is read from the metrics."""

import random

import openai
import pytest

from kv_disk_test import (await_saved, fixture_folder, start,  # pylint: disable=unused-import
                          verified)
from serving import NAME, Server

BLOCK = 16  # tokens
BLOCK_BYTES = 16 << 10  # of the demo model
MEMORY = ["--kv-cache-memory", "1MiB", "--max-model-len", "1000"]  # 64 blocks
RAM = ["--kv-ram", "3MiB"]  # room for up to 288 packed blocks
WORDS = "fox lantern hill sea boat story river stone winter apple garden moon road bird".split()


def story(seed, words=160):
    rng = random.Random(seed)
    return f"{seed}: " + " ".join(rng.choice(WORDS) for _ in range(words))


class Chat:
    """A chat with one server after another. `prompt`: the full blocks of its last prompt. `new`:
    the full blocks that its last turn computed, the answer's included."""

    def __init__(self, server):
        self.server = server
        self.messages = []
        self.prompt = self.new = 0

    def say(self, text):
        """The answer, and the tokens of the prompt that were not computed."""
        self.messages.append({"role": "user", "content": text})
        with openai.OpenAI(base_url=self.server.base + "/v1", api_key=self.server.key) as client:
            answer = client.chat.completions.create(
                model=NAME, messages=self.messages, temperature=0, max_tokens=24,
                extra_body={"ignore_eos": True})
        said = answer.choices[0].message.content
        self.messages.append({"role": "assistant", "content": said})
        usage = answer.usage
        cached = usage.prompt_tokens_details.cached_tokens
        self.prompt = usage.prompt_tokens // BLOCK
        # The last token of an answer is never computed.
        self.new = (usage.prompt_tokens + usage.completion_tokens - 1) // BLOCK - cached // BLOCK
        return said, cached


def tiers(server):
    """The counts of /metrics for both tiers together, and for each."""
    metrics = server.metrics()
    names = ["hit_tokens_total", "bytes_loaded_total", "saved_seconds_total"]
    return {tier: {name: metrics[f"kv_tier_{level}{name}{label}"] for name in names}
            for tier, level, label in (("all", "", ""), ("ram", "level_", "{tier=ram}"),
                                       ("disk", "level_", "{tier=disk}"))}


def expect_only(tier, before, after, cached):
    """All tokens that were found came from this tier."""
    for name in ("all", tier):
        assert after[name]["hit_tokens_total"] - before[name]["hit_tokens_total"] == cached, name
        loaded = after[name]["bytes_loaded_total"] - before[name]["bytes_loaded_total"]
        assert loaded == cached // BLOCK * BLOCK_BYTES, name
    other = "disk" if tier == "ram" else "ram"
    assert after[other] == before[other]


class Pressure:
    """Other chats, whose blocks reach both tiers too. `saved`: the blocks that both have had."""

    def __init__(self, server):
        self.server, self.saved, self.seed = server, 0, 1000

    def add(self, blocks):
        end = self.saved + blocks
        while self.saved < end:
            self.seed += 1
            other = Chat(self.server)
            _, cached = other.say(story(self.seed))
            assert cached == 0
            self.await_new(other)

    def await_new(self, chat):
        self.saved += chat.new
        await_saved(self.server, self.saved * BLOCK)


@pytest.fixture(name="wanted")
def fixture_wanted():
    """The answers of a server that has all KV in memory."""
    with Server() as plain:
        chat = Chat(plain)
        return [chat.say(text)[0] for text in (story(1), *TURNS)]


TURNS = ["And then?", "What did the fox do?", "How does it end?"]


def tiers_saved(server):
    metrics = server.metrics()
    return [metrics[f"kv_tier_level_bytes_saved_total{{tier={tier}}}"] for tier in ("ram", "disk")]


def go_on(chat, text, wanted, tier):
    """The next turn: all of the last prompt comes from this tier, and no token differs."""
    before, held = tiers(chat.server), chat.prompt
    said, cached = chat.say(text)
    assert said == wanted
    assert held * BLOCK <= cached
    expect_only(tier, before, tiers(chat.server), cached)


def test_a_chat_comes_back_from_ram_then_from_the_disk_and_after_a_restart(folder, wanted):
    with start(folder, *MEMORY, *RAM) as server:
        chat = Chat(server)
        assert chat.say(story(1)) == (wanted[0], 0)
        pressure = Pressure(server)
        pressure.await_new(chat)
        assert tiers_saved(server) == [chat.new * BLOCK_BYTES] * 2

        pressure.add(70)  # more than memory has
        assert server.metrics()["kv_tier_hit_tokens_total"] == 0
        go_on(chat, TURNS[0], wanted[1], "ram")
        pressure.await_new(chat)

        pressure.add(290)  # more than RAM has
        assert server.metrics()["kv_tier_memory_bytes"] <= 3 << 20
        go_on(chat, TURNS[1], wanted[2], "disk")
        pressure.await_new(chat)
        counted = tiers(server)
        for name, value in counted["all"].items():
            each = [counted[tier][name] for tier in ("ram", "disk")]
            assert value == pytest.approx(sum(each)) and all(each), (name, value, each)
        assert tiers_saved(server)[1] == pressure.saved * BLOCK_BYTES
        assert server.metrics()["kv_tier_failures_total"] == 0

    code, (good, bad, torn), _ = verified(folder)
    assert code == 0 and (good, bad, torn) == (pressure.saved, 0, 0)
    with start(folder, *MEMORY, *RAM) as server:
        chat.server = server
        go_on(chat, TURNS[2], wanted[3], "disk")
