"""Chats that go on after the server was killed: their KV is read from --kv-disk, not computed."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import time

import openai
import pytest

from raw_socket import RawClient, post
from serving import BINARY, LONG_WAIT, MODEL, NAME, PATIENCE, Server

KEYS = "a sk-aaaaaaaaaaaa\nb sk-bbbbbbbbbbbb\n"
STORY = "Once upon a time there was a fox who carried a lantern over the hill to the sea. " * 40


TIERS = pytest.mark.parametrize("tiers", [[], ["--kv-ram", "8MiB"]], ids=["disk", "ram_and_disk"])


@pytest.fixture(name="folder")
def fixture_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "keys").write_text(KEYS)
    return tmp_path


def start(folder, *options, expected_status=0, limits=""):
    return Server("--kv-disk", f"{folder}/kv:64MiB{limits}", "--api-key-file", str(folder / "keys"),
                  *options, api_key="sk-aaaaaaaaaaaa", expected_status=expected_status)


def chat(server, messages, key="sk-aaaaaaaaaaaa"):
    """The answer, the tokens of the prompt that were not computed, and all of them."""
    with openai.OpenAI(base_url=server.base + "/v1", api_key=key) as client:
        answer = client.chat.completions.create(
            model=NAME, messages=messages, temperature=0, max_tokens=24,
            extra_body={"ignore_eos": True})
    usage = answer.usage
    return (answer.choices[0].message.content, usage.prompt_tokens_details.cached_tokens,
            usage.prompt_tokens)


def await_saved(server, prompt_tokens):
    """Until the disk has the blocks of a prompt, the first that the server computed."""
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while (saved := server.metrics()["kv_tier_blocks_saved_total"]) < prompt_tokens // 16:
        assert time.monotonic() < deadline, (saved, prompt_tokens)
        time.sleep(0.01)


def together(server, bodies):
    """The texts of completions that come to the server at the same moment, in this order."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server)) for _ in bodies]
        with server.stopped():
            for client, body in zip(clients, bodies):
                client.send(post("/v1/completions", {"model": NAME, "temperature": 0,
                                                     "ignore_eos": True, **body},
                                 "Authorization: Bearer sk-aaaaaaaaaaaa"))
        texts = []
        for client in clients:
            status, _, body = client.response()
            assert status == 200, body
            texts.append(json.loads(body)["choices"][0]["text"])
        return texts


def burst(server, count=24):
    return together(server, [{"prompt": f"Story number {i}: there was a fox, and it",
                              "max_tokens": 160} for i in range(count)])


@TIERS
def test_turns_in_a_burst_beyond_memory_change_no_text(folder, tiers):
    """That every prompt starts to answer early is tested in policy_fair_test."""
    small = ["--kv-cache-memory", "1MiB", "--max-model-len", "512"]
    with Server() as plain:
        wanted = burst(plain)
    with start(folder, "--scheduler", "fair", *small, *tiers) as server:
        assert burst(server) == wanted
        metrics = server.get("/metrics").text
    names = [r"kv_tier_blocks_loaded_total\S*", r"num_preemptions_total\S*"]
    if tiers:
        names += [r'kv_tier_level_bytes_loaded_total\S*tier="ram"\S*',
                   r'kv_tier_level_bytes_saved_total\S*tier="disk"\S*']
    for name in names:
        value = re.search(rf"^\S*:{name} (\d+)", metrics, re.MULTILINE)
        assert value and int(value[1]) > 0, name


def test_an_urgent_call_displaces_one_that_goes_on_from_the_disk(folder):
    small = ["--kv-cache-memory", "1MiB", "--max-model-len", "512"]
    low = {"prompt": "Once there was a fox", "max_tokens": 480, "priority": 5}
    urgent = {"prompt": "A boat", "max_tokens": 300, "priority": 0}

    with Server() as plain:
        wanted = together(plain, [low, urgent])
    with start(folder, *small) as server:
        assert together(server, [low] * 8 + [urgent] * 4) == [wanted[0]] * 8 + [wanted[1]] * 4
        metrics = server.get("/metrics").text
    value = re.search(r"^\S*:num_preemptions_total\S* (\d+)", metrics, re.MULTILINE)
    assert int(value[1]) > 0


@TIERS
def test_a_chat_goes_on_after_kill_9(folder, tiers):
    first = [{"role": "user", "content": STORY}]
    with start(folder, *tiers, expected_status=-signal.SIGKILL) as server:
        said, cached, prompt = chat(server, first)
        assert cached == 0
        second = first + [{"role": "assistant", "content": said},
                          {"role": "user", "content": "And then?"}]
        await_saved(server, prompt)
        server.process.kill()
        server.process.wait()
    with Server() as plain:
        wanted, _, _ = chat(plain, second, key="none")
    with start(folder, *tiers) as server:
        assert "blocks of" in server.stderr()
        again, cached, prompt = chat(server, second)
        assert again == wanted
        assert cached >= 0.9 * prompt - 60, (cached, prompt)
        metrics = dict(line.rsplit(" ", 1) for line in server.get("/metrics").text.splitlines()
                       if line.startswith("sluice:kv_tier"))
        metrics = {name.split("{")[0]: float(value) for name, value in metrics.items()}
        assert metrics["sluice:kv_tier_blocks_loaded_total"] * 16 >= cached > 0
        assert metrics["sluice:kv_tier_failures_total"] == 0
        assert metrics["sluice:kv_tier_hit_tokens_total"] == cached
        bytes_loaded = metrics["sluice:kv_tier_bytes_loaded_total"]
        assert bytes_loaded % metrics["sluice:kv_tier_blocks_loaded_total"] == 0 < bytes_loaded
        assert metrics["sluice:kv_tier_saves_paused"] == 0
        assert 0 < metrics["sluice:kv_tier_pages_used"] < metrics["sluice:kv_tier_pages"]
        other, cached, _ = chat(server, second, key="sk-bbbbbbbbbbbb")
        assert other == wanted and cached == 0
        for entry in os.scandir(folder / "kv"):
            assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(folder / "state" / "sluice" / "kv-secret").st_mode) == 0o600


def test_damage_and_another_secret_are_misses(folder):
    messages = [{"role": "user", "content": STORY}]
    with start(folder) as server:
        wanted, _, _ = chat(server, messages)
    segment, = [entry.path for entry in os.scandir(folder / "kv") if "segment" in entry.name]
    with open(segment, "r+b") as file:
        size = os.path.getsize(segment)
        for at in range(65536, size, 1000):  # every page has some
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 255]))
    with start(folder) as server:
        said, cached, _ = chat(server, messages)
        assert said == wanted and cached == 0
        assert "damaged" in server.stderr() and "computed again" in server.stderr()
    (folder / "state" / "sluice" / "kv-secret").unlink()
    with start(folder) as server:
        said, cached, _ = chat(server, messages)
        assert said == wanted and cached == 0


def test_a_days_bytes_limit_what_is_saved(folder):
    limits = ",free=1MiB,age=7d,daily=64KiB,evict=seconds,io=threads"
    with start(folder, limits=limits) as server:
        chat(server, [{"role": "user", "content": STORY}])
    code, (good, _, _), _ = verified(folder)
    assert code == 0 and 0 < good < 40, good  # a step may start 16 saves more
    with start(folder, limits=limits) as server:
        chat(server, [{"role": "user", "content": STORY[::-1]}])
    assert verified(folder)[1][0] == good, "the next start has no new day"
    with start(folder) as server:
        chat(server, [{"role": "user", "content": STORY}])
    assert verified(folder)[1][0] > 45


def test_a_stop_saves_the_last_turn(folder):
    first = [{"role": "user", "content": STORY}]
    with start(folder) as server:
        said, _, _ = chat(server, first)
    second = first + [{"role": "assistant", "content": said},
                      {"role": "user", "content": "And then?"}]
    with start(folder) as server:
        assert "may be lost" not in server.stderr()
        _, cached, prompt = chat(server, second)
        assert cached >= 0.9 * prompt - 60, (cached, prompt)


def kv(*arguments):
    return subprocess.run([BINARY, "kv", *arguments], capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=False)


def test_a_folder_is_encrypted_with_a_key(folder):
    key, other = folder / "key", folder / "other"
    for path, digit in ((key, "5"), (other, "6")):
        path.write_text(digit * 64 + "\n")
        path.chmod(0o600)
    messages = [{"role": "user", "content": STORY}]
    with start(folder, "--kv-disk-key", str(key)) as server:
        wanted, _, _ = chat(server, messages)
        chat(server, messages, key="sk-bbbbbbbbbbbb")
    assert not (folder / "state").exists(), "the key is the only secret"
    code, (good, bad, torn), _ = verified(folder, "--kv-disk-key", str(key))
    assert code == 0 and good > 40 and bad == torn == 0, (code, good, bad, torn)
    code, (good, _, _), said = verified(folder, "--kv-disk-key", str(other))
    assert code == 1 and good == 0 and "another secret or key" in said, said
    with start(folder, "--kv-disk-key", str(key)) as server:
        assert ", encrypted" in server.stderr()
        said, cached, prompt = chat(server, messages)
        assert said == wanted and cached > 0.9 * prompt
    for options in (["--kv-disk-key", str(other)], []):
        with start(folder, *options) as server:
            said, cached, _ = chat(server, messages)
            assert said == wanted and cached == 0, options
            assert "other models, versions or keys" in server.stderr()
    key.chmod(0o644)
    done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--kv-disk",
                           f"{folder}/kv:64MiB", "--kv-disk-key", str(key)], capture_output=True,
                          text=True, timeout=60 * PATIENCE, check=False)
    assert done.returncode == 1 and "chmod 600" in done.stderr, done


@TIERS
def test_a_call_may_keep_its_kv_in_memory(folder, tiers):
    with start(folder, *tiers) as server:
        with openai.OpenAI(base_url=server.base + "/v1", api_key="sk-aaaaaaaaaaaa") as client:
            def ask():
                answer = client.chat.completions.create(
                    model=NAME, messages=[{"role": "user", "content": STORY}], temperature=0,
                    max_tokens=24, prompt_cache_retention="in_memory")
                return answer.usage.prompt_tokens_details.cached_tokens
            assert ask() == 0
            assert ask() > 0, "memory has it"
        assert re.search(r":kv_tier_blocks_saved_total\S* 0$", server.get("/metrics").text, re.M)
    code, (good, _, _), _ = verified(folder)
    assert code == 0 and good == 0
    with start(folder) as server:
        assert chat(server, [{"role": "user", "content": STORY}])[1] == 0


def verified(folder, *options):
    """The exit code of kv verify, and good, bad and torn blocks of all models."""
    done = kv("verify", str(folder / "kv"), *options)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return done.returncode, [sum(int(row[i]) for row in rows) for i in (2, 3, 4)], done.stderr


def test_every_block_of_a_folder_can_be_verified(folder):
    assert kv("verify", str(folder / "kv")).returncode == 1
    with start(folder) as server:
        chat(server, [{"role": "user", "content": STORY}])
    code, (good, bad, torn), _ = verified(folder)
    assert code == 0 and good > 20 and bad == torn == 0, (code, good, bad, torn)
    segment, = [entry.path for entry in os.scandir(folder / "kv") if "segment" in entry.name]
    with open(segment, "r+b") as file:
        file.seek(4096 + 60)  # the first record
        file.write(b"x")
        file.seek(-1000, os.SEEK_END)
        file.truncate()
    code, (after, bad, torn), _ = verified(folder)
    assert code == 1 and torn >= 1 and bad == 0 and after == good - torn, (after, bad, torn)
    with start(folder):  # a damaged folder serves
        assert "another process has it" in verified(folder)[2]


def test_one_server_has_the_folder(folder):
    with start(folder) as server:
        _, _, prompt = chat(server, [{"role": "user", "content": STORY}])
        await_saved(server, prompt)
        assert kv("clear", str(folder / "kv")).returncode == 1
        done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--kv-disk",
                               f"{folder}/kv:64MiB"], capture_output=True, text=True,
                              timeout=60 * PATIENCE, check=False)
        assert done.returncode == 1 and "another process has it" in done.stderr, done
    listed = kv("ls", str(folder / "kv")).stdout.splitlines()
    assert len(listed) == 2 and listed[1].split()[1] == "1", listed
    assert "MiB removed" in kv("clear", str(folder / "kv")).stdout
    assert len(kv("ls", str(folder / "kv")).stdout.splitlines()) == 1
    assert kv("ls", str(folder / "none")).returncode == 1


@pytest.mark.parametrize("options, said", [
    (["--kv-disk", ""], "--kv-disk has an empty value"),
    (["--api-key-file", ""], "--api-key-file has an empty value"),
    (["--kv-disk", "kv"], "DIR:SIZE"), (["--kv-disk", "kv:much"], "--kv-disk"),
    (["--kv-disk", "kv:1GiB", "--no-enable-prefix-caching"], "prefix cache"),
    (["--kv-disk", "kv:1GiB", "--isolation", "process"], "--isolation process"),
    (["--kv-disk-key", "key"], "--kv-disk"),
    (["--kv-disk", "kv:1GiB,speed=5"], "free=SIZE"), (["--kv-disk", "kv:1GiB,age=5"], "30d"),
    (["--kv-disk", "kv:1GiB,free=much"], "--kv-disk free"),
    (["--kv-disk", "kv:1GiB,daily="], "--kv-disk daily"),
    (["--kv-disk", "kv:1GiB,stream=much"], "--kv-disk stream"),
    (["--kv-disk", "kv:1GiB,stream=1GiB"], "must be less"),
    (["--kv-disk", "kv:1GiB,evict=fifo"], "lru or seconds"),
    (["--kv-disk", "kv:1GiB,io=mmap"], "uring or threads"),
])
def test_wrong_options_are_named(folder, options, said):
    done = subprocess.run([BINARY, "serve", MODEL, *options], capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=False, cwd=folder)
    assert done.returncode == 2 and said in done.stderr, done


def test_a_folder_without_room_for_a_block_is_refused(folder):
    done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--kv-disk", "kv:1KiB"],
                          capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
                          cwd=folder)
    assert done.returncode == 1, done
    assert f"--kv-disk: {folder}/kv: 1024 bytes have no room" in done.stderr, done


def test_a_folder_may_have_colons_and_spaces(folder):
    with Server("--kv-disk", f"{folder}/my kv: 1:64MiB") as server:
        chat(server, [{"role": "user", "content": STORY}], key="none")
    assert kv("ls", str(folder / "my kv: 1")).stdout.splitlines()[1].split()[1] == "1"


def test_a_full_disk_is_named_once(folder):
    with start(folder, limits=",free=900TiB") as server:
        for text in (STORY, STORY[::-1]):
            chat(server, [{"role": "user", "content": text}])
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while "KV tier: a block was not saved" not in server.stderr():
            assert time.monotonic() < deadline, server.stderr()
            time.sleep(0.01)
        time.sleep(0.1)  # for the failures of the other blocks
        said = server.stderr()
    assert said.count("; no block is saved for 30 s") == 1, said
    assert said.count("KV tier: a block was not saved") == 1, said
