"""The server's memory: weight files that change under it, KV memory that grows and goes back."""

import http.client
import json
import os
import shutil
import time

import pytest

from serving import ENDLESS, LONG_WAIT, MODEL, NAME, PATIENCE, SLOW, Server, sse_events

COMPLETIONS = "/v1/completions"
SHORT = {"model": NAME, "prompt": "Once", "max_tokens": 4, "ignore_eos": True, "temperature": 0}
GREEDY = ENDLESS | {"temperature": 0}


@pytest.fixture(name="model")
def copied_model(tmp_path):
    """A copy of the model, whose files a test may spoil."""
    return shutil.copytree(MODEL, tmp_path / NAME)


def await_status(server, path, status):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while server.get(path).status != status:
        assert time.monotonic() < deadline, f"{path} is not {status}"
        time.sleep(0.05)


def texts_of(events):
    texts = {}
    for event in events:
        for choice in event.get("choices", []):
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def assert_failed_but_alive(server, reason):
    await_status(server, "/health", 503)
    answer = server.post(COMPLETIONS, SHORT)
    assert answer.status == 503, answer
    assert "model.safetensors" in answer.text and reason in answer.text, answer.text
    assert "model.safetensors" in server.stderr() and reason in server.stderr()
    assert server.process.poll() is None
    assert server.get("/metrics").status == 200


def test_a_truncated_model_fails_the_engine_and_not_the_process(model):
    with Server(model=str(model)) as server:
        assert server.post(COMPLETIONS, SHORT).status == 200
        os.truncate(model / "model.safetensors", 4096)
        answer = server.post(COMPLETIONS, SHORT)
        assert answer.status == 503, answer
        assert_failed_but_alive(server, "truncated")


def test_a_stream_ends_before_its_first_wrong_token(model):
    with Server(*SLOW) as server:
        right = server.complete("Once", max_tokens=400, ignore_eos=True)["text"]
    with Server(*SLOW, model=str(model)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port,
                                                timeout=LONG_WAIT * PATIENCE)
        connection.request("POST", COMPLETIONS, json.dumps(GREEDY))
        response = connection.getresponse()
        received = b""
        while len(received) < 4000:
            received += response.read1(4096)
        os.truncate(model / "model.safetensors", 4096)
        received += response.read()
        connection.close()
        events = [json.loads(line.removeprefix("data: "))
                  for line in received.decode().split("\n\n") if line]
        message = events[-1]["error"]["message"]
        assert "truncated" in message and "model.safetensors" in message, events[-1]
        texts = texts_of(events[:-1])
        assert len(texts) == GREEDY["n"]
        for got in texts.values():  # as far as the right text is known
            assert got and got[:len(right)] == right[:len(got)]
        assert_failed_but_alive(server, "truncated")


def test_a_change_in_place_is_noticed_while_idle(model):
    with Server(model=str(model)) as server:
        assert server.post(COMPLETIONS, SHORT).status == 200
        with open(model / "model.safetensors", "r+b") as stream:
            stream.seek(100_000)
            stream.write(b"spoilt")
        await_status(server, "/health", 503)
        assert_failed_but_alive(server, "changed in place")


def test_a_replaced_model_is_served_on(model):
    with Server(model=str(model)) as server:
        before = server.post(COMPLETIONS, SHORT).text
        shutil.copy(model / "config.json", model / "new")
        os.rename(model / "new", model / "model.safetensors")
        time.sleep(5)
        after = server.post(COMPLETIONS, SHORT)
        assert after.status == 200
        texts = [json.loads(text)["choices"][0]["text"] for text in (before, after.text)]
        assert texts[0] == texts[1]


def fill_kv(server, prompts):
    """Answers long prompts that share nothing, so that the prefix cache keeps them all."""
    texts = []
    for i in range(prompts):
        words = " ".join(f"{i} {n}" for n in range(330))
        texts.append(server.complete(words, max_tokens=2)["text"])
    return texts


def test_idle_kv_memory_goes_back_to_the_system():
    with Server("--kv-idle-release", "2", "--kv-cache-memory", "512MiB") as server:
        first = server.complete(max_tokens=20)["text"]
        resident = server.resident_bytes()
        texts = fill_kv(server, 30)
        grown = server.highest_resident_bytes()  # a machine may be idle between two prompts
        assert grown > resident + (24 << 20), "more than the first 16 MiB are used"
        # Two seconds after the last step, which may be the canary's, a second after the answer.
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while server.resident_bytes() > grown - (8 << 20):
            assert time.monotonic() < deadline, "nothing was released"
            time.sleep(0.1)
        assert server.complete(max_tokens=20)["text"] == first
        assert fill_kv(server, 3) == texts[:3]


def test_kv_memory_stays_without_the_option():
    with Server("--kv-cache-memory", "512MiB") as server:
        fill_kv(server, 20)
        grown = server.resident_bytes()
        time.sleep(3)
        assert server.resident_bytes() > grown - (2 << 20)
