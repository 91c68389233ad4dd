"""Answers that SIGTERM interrupts, and that a client asks for again by its request id."""

import http.client
import json
import os
import re
import stat
import time

import pytest

from serving import LONG_WAIT, NAME, PATIENCE, SLOW, Server

KEYS = "a sk-aaaaaaaaaaaa\nb sk-bbbbbbbbbbbb\n"
# The penalty depends on all tokens before, and each token has its own draw. SLOW: the signal comes
# long before the end.
BODY = {"model": NAME, "prompt": "Once upon a time there was a fox who saw a boat",
        "max_tokens": 250, "temperature": 0.8, "repetition_penalty": 1.1, "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True}}
EVENTS = 60  # before the signal


@pytest.fixture(name="folder")
def fixture_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "keys").write_text(KEYS)
    return tmp_path


def start(folder, *options):
    return Server("--kv-disk", f"{folder}/kv:64MiB", "--api-key-file", str(folder / "keys"),
                  "--drain-timeout", "0", *SLOW, *options, api_key="sk-aaaaaaaaaaaa")


def send(server, path, body, request_id, key="sk-aaaaaaaaaaaa"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", path, json.dumps(body),
                       {"Authorization": "Bearer " + key, "X-Request-Id": request_id})
    return connection


class Stream:
    """A streamed answer; `text` is what has come of it."""

    def __init__(self, server, body, request_id, key="sk-aaaaaaaaaaaa"):
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        self.connection = send(server, path, body, request_id, key)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        self.text, self.events, self.usage, self.error = "", 0, None, None

    def read(self, most=None):
        """Until the end, or until `most` events have come."""
        while line := self.answer.readline():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            self.error = event.get("error", self.error)
            self.usage = event.get("usage") or self.usage
            for choice in event.get("choices", []):
                self.text += choice["text"] if "text" in choice else (
                    choice["delta"].get("content") or "")
                self.events += 1
            if most and self.events >= most:
                return self
        self.close()
        return self

    def close(self):
        self.answer.close()
        self.connection.close()


def await_value(server, name, reached):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while not reached(server.metrics()[name]):
        assert time.monotonic() < deadline, server.metrics()
        time.sleep(0.01)


def answers(folder):
    return [entry for entry in os.scandir(folder / "kv") if entry.name.endswith(".resume")]


def interrupt(folder, body, request_id):
    """The text that came until the server got SIGTERM, and was ended."""
    with start(folder) as server:
        stream = Stream(server, body, request_id).read(EVENTS)
        server.terminate()
        stream.read()
        assert server.wait() == 0
        assert stream.error, "the answer was complete before the signal came"
        assert "1 answers are saved" in server.stderr()
    saved, = answers(folder)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    return stream.text


def test_an_answer_goes_on_after_sigterm(folder):
    body = {**BODY, "seed": 7}
    came = interrupt(folder, body, "call-1")
    with start(folder) as server:
        again = Stream(server, body, "call-1").read()
        hits = server.metrics()["kv_tier_hit_tokens_total"]
        undisturbed = Stream(server, body, "call-2").read()
    assert again.text == undisturbed.text
    assert again.text.startswith(came)
    assert again.usage["completion_tokens"] == undisturbed.usage["completion_tokens"] == 250
    # All but the partial block at the end, and what was on its way to the client.
    assert hits >= EVENTS
    assert not answers(folder)


def test_kinds_of_answers_go_on_also_after_a_crash(folder):
    """A whole answer, one that keeps to a grammar, and one with a stop string; the server that they
    first go on in is killed."""
    whole = {**BODY, "stream": False, "stream_options": None, "max_tokens": 100, "seed": 3}
    grammar = {"model": NAME, "messages": [{"role": "user", "content": "Count."}], "stream": True,
               "guided_regex": "([0-9]{3}, ){60}end", "max_tokens": 2000, "temperature": 1.5}
    stop = {**BODY, "max_tokens": 2000, "seed": 11, "ignore_eos": False,
            "stop": ["zebra"]}
    with start(folder) as server:
        connection = send(server, "/v1/completions", whole, "whole")
        await_value(server, "generation_tokens_total", lambda count: count > 0)
        streams = [Stream(server, body, name).read(20)
                   for body, name in ((grammar, "grammar"), (stop, "stop"))]
        server.terminate()
        refused = connection.getresponse()
        assert refused.status == 503, refused.read()
        connection.close()
        came = [stream.read().text for stream in streams]
        assert server.wait() == 0
        assert "3 answers are saved" in server.stderr()
    server = start(folder)
    again = Stream(server, grammar, "grammar").read(3)
    assert again.text.startswith(came[0])
    server.process.kill()
    again.close()
    server.expected_status = -9
    server.stop()
    with start(folder) as server:
        connection = send(server, "/v1/completions", whole, "whole")
        went_on = json.loads(connection.getresponse().read())
        connection.close()
        anew = server.post("/v1/completions", whole).json()
        again = Stream(server, grammar, "grammar").read()
        stopped = Stream(server, stop, "stop").read()
        undisturbed = Stream(server, stop, "stop-2").read()
    assert went_on["choices"] == anew["choices"]
    assert went_on["usage"]["completion_tokens"] == 100
    assert again.text.startswith(came[0]) and re.fullmatch(grammar["guided_regex"], again.text)
    assert stopped.text.startswith(came[1]) and stopped.text == undisturbed.text
    assert not answers(folder)


def test_only_the_same_call_goes_on(folder):
    came = interrupt(folder, BODY, "call-1")  # without a seed, which the later server must know
    with start(folder) as server:
        short = {**BODY, "max_tokens": 40}
        for body, request_id, key in [(short, "call-1", "sk-aaaaaaaaaaaa"),
                                      (BODY, "call-1", "sk-bbbbbbbbbbbb"),
                                      (BODY, "call-2", "sk-aaaaaaaaaaaa")]:
            other = Stream(server, body, request_id, key).read(30)
            other.close()
            assert not other.text.startswith(came[:60])
        whole = server.post("/v1/completions", {**BODY, "stream": False, "stream_options": None},
                            headers={"X-Request-Id": "call-1"}).json()
        assert not whole["choices"][0]["text"].startswith(came[:60])
        again = Stream(server, BODY, "call-1").read()
        assert again.text.startswith(came)
        assert again.usage["completion_tokens"] == 250


def test_a_call_that_leaves_nothing_on_the_disk_is_not_saved(folder):
    body = {**BODY, "prompt_cache_retention": "in_memory"}
    with start(folder) as server:
        stream = Stream(server, body, "call-1").read(5)
        server.terminate()
        stream.read()
        assert server.wait() == 0 and stream.error
    assert not answers(folder)
