"""Warm prompts: every tenant finds the operator's blocks, and no other tenant's."""

import json
import shutil
import subprocess
import time

import pytest

from serving import BINARY, LONG_WAIT, MODEL, NAME, PATIENCE, Server

KEYS = {"alice": "sk-alice-1234", "bob": "sk-bob-12345"}
BLOCK = 16
SYSTEM = "You are a helpful cat. " * 24
MESSAGES = [{"role": "system", "content": SYSTEM}]


@pytest.fixture(name="files")
def fixture_files(tmp_path, monkeypatch):
    """A chat, a file of keys, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "chat.json").write_text(json.dumps(MESSAGES))
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
    keys.chmod(0o600)
    return tmp_path


def ask(server, name, turn, system=SYSTEM):
    """One chat of a tenant: its text, and its tokens in the prompt and from the cache."""
    answer = server.post("/v1/chat/completions", {
        "model": NAME, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": turn}]},
        headers={"Authorization": "Bearer " + KEYS[name]})
    assert answer.status == 200, answer
    body = answer.json()
    details = body["usage"]["prompt_tokens_details"]
    return (body["choices"][0]["message"]["content"], body["usage"]["prompt_tokens"],
            details["cached_tokens"] if details else 0)


def await_line(server, text):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while text not in server.stderr():
        assert time.monotonic() < deadline, f"no line '{text}':\n{server.stderr()}"
        time.sleep(0.05)


def serve(files, *options, model=MODEL):
    return Server("--api-key-file", str(files / "keys"), "--block-size", str(BLOCK), *options,
                  api_key=KEYS["alice"], model=model)


def check_neighbours(server, cold):
    """Bob finds the operator's blocks, and none that Alice's own prompt filled."""
    long_turn = "Tell me about the queue. " * 8
    text, prompt, cached = ask(server, "alice", long_turn)
    assert text == cold and cached >= 4 * BLOCK and cached % BLOCK == 0
    warm = cached
    assert prompt - warm > 2 * BLOCK  # there is more that Alice's prompt fills
    text, _, cached = ask(server, "bob", long_turn)
    assert text == cold and cached == warm
    # Each finds its own blocks behind the operator's.
    for name in KEYS:
        text, _, cached = ask(server, name, long_turn)
        assert text == cold and cached > warm
    # A prompt that no one warmed is found by no neighbour.
    other = "You are a dog. " * 24
    assert ask(server, "alice", "Hi", other)[2] < 2 * BLOCK
    assert ask(server, "bob", "Hi", other)[2] < 2 * BLOCK


def cold_answer(files):
    with serve(files, "--snapshot", "off") as server:
        text, _, cached = ask(server, "alice", "Tell me about the queue. " * 8)
        assert cached == 0
        assert ask(server, "bob", "Tell me about the queue. " * 8)[2] == 0
        return text


def test_a_neighbour_finds_the_operators_blocks_only(files):
    cold = cold_answer(files)
    with serve(files, "--warm", str(files / "chat.json"), "--snapshot", "off") as server:
        await_line(server, "warm prompts: 1 of 1 in memory")
        check_neighbours(server, cold)


def test_a_snapshot_has_warm_prompts_ready_at_start(files):
    cold = cold_answer(files)
    snapshot = str(files / "warm.snapshot")
    saved = subprocess.run([BINARY, "snapshot", "save", MODEL, "-o", snapshot, "--threads", "2",
                            "--warm", str(files / "chat.json")],
                           capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    assert saved.returncode == 0 and "warm-prompts" in saved.stdout, saved
    with serve(files, "--snapshot", snapshot, "--verify") as server:
        await_line(server, "ready: ")
        assert "warm prompts: 1 of 1 in memory" in server.stderr()
        assert "canary" in server.stderr()
        check_neighbours(server, cold)
    # Other blocks, other contents: told, and right.
    with serve(files, "--snapshot", snapshot, "--dtype", "f32") as server:
        assert "section 'warm-prompts'" in server.stderr()
        assert ask(server, "alice", "Hi")[2] == 0


def test_auto_keeps_what_serve_computed(files):
    options = ("--warm", str(files / "chat.json"))
    cold = cold_answer(files)
    with serve(files, *options) as server:
        await_line(server, "warm prompts: 1 of 1 in memory")
    with serve(files, *options) as server:
        assert "warm prompts: 1 of 1 in memory" in server.stderr()
        check_neighbours(server, cold)
    # Without --warm the cache folder's prompts are no one's.
    with serve(files) as server:
        assert "warm prompts" not in server.stderr()
        assert ask(server, "alice", "Hi")[2] == 0


def dated_model(files):
    """The demo model with a template that names the date."""
    model = files / "demo"
    shutil.copytree(MODEL, model)
    (model / "chat_template.jinja").write_text(
        "{{ 'Today is ' + strftime_now('%A, %Y-%m-%d') + '. ' }}{% for m in messages %}"
        "{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}")
    return str(model)


def test_the_prompt_of_another_day_is_computed_again(files, monkeypatch):
    model = dated_model(files)
    snapshot = str(files / "warm.snapshot")
    monkeypatch.setenv("TZ", "West+12")  # these two clocks never show the same date
    subprocess.run([BINARY, "snapshot", "save", model, "-o", snapshot, "--threads", "2",
                    "--warm", str(files / "chat.json")],
                   capture_output=True, timeout=60 * PATIENCE, check=True)
    monkeypatch.setenv("TZ", "East-14")
    with serve(files, "--snapshot", snapshot, model=model) as server:
        assert "is not what the snapshot has" in server.stderr()
        await_line(server, "warm prompts: 1 of 1 in memory")
        assert ask(server, "alice", "Hi")[2] >= 4 * BLOCK


def test_a_limit_that_is_too_small_is_told(files):
    with serve(files, "--warm", str(files / "chat.json"), "--warm-limit", "0",
               "--snapshot", "off") as server:
        assert "NOT held in memory" in server.stderr()


@pytest.mark.parametrize("chat, said", [
    ("{", "is not valid JSON"),
    ("[]", "neither messages nor tools"),
    ('{"messages": 3}', "messages must be an array of objects"),
    ('[{"role": "system", "content": "x"}, {"role": "robot"}]', "chat.json"),
])
def test_a_bad_chat_names_the_file(files, chat, said):
    (files / "chat.json").write_text(chat)
    done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--warm",
                           str(files / "chat.json")],
                          capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    assert done.returncode in (1, 2) and said in done.stderr and "chat.json" in done.stderr, done
