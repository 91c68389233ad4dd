"""Requests of clients that know more fields than the server, and vLLM's fields for tokens."""

import openai
import pytest

from raw_socket import RawClient, post
from serving import ENDLESS, NAME, SLOW, Server

HEADER = "x-sluice-ignored-fields"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as made:
        yield made


def complete(server, **fields):
    return server.post(COMPLETIONS, {"model": NAME, "prompt": "Once upon a time", "max_tokens": 8,
                                     "temperature": 0, **fields})


def test_unknown_fields_are_ignored_and_named(server):
    plain = complete(server)
    answer = complete(server, zoom=1, temprature=2.0, **{"a b\n": {"x": [1]}})
    assert answer.status == 200, answer
    assert answer.headers[HEADER] == "zoom, temprature, a%20b%0A"
    assert answer.json()["choices"][0]["text"] == plain.json()["choices"][0]["text"]
    assert HEADER not in plain.headers


@pytest.mark.parametrize("path, body", [
    (CHAT, {"messages": MESSAGES, "max_tokens": 2}),
    (CHAT, {"messages": MESSAGES, "max_tokens": 2, "stream": True}),
    ("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [5]})])
def test_every_call_names_them(server, path, body):
    answer = server.post(path, body | {"model": NAME, "unheard_of": None})
    assert answer.status == 200 and answer.headers[HEADER] == "unheard_of", answer


def test_the_log_names_each_field_once(server):
    for _ in range(3):
        assert complete(server, only_once_logged=1, max_token=3).status == 200
    lines = [line for line in server.stderr().splitlines() if "only_once_logged" in line]
    assert len(lines) == 1 and "--strict-fields" in lines[0], lines
    lines = [line for line in server.stderr().splitlines() if '"max_token"' in line]
    assert len(lines) == 1 and 'did you mean "max_tokens"?' in lines[0], lines


def test_the_log_names_a_hundred_fields():
    with Server() as server:
        for start in range(0, 300, 20):
            fields = {f"field_{i}_" + "x" * 100: 1 for i in range(start, start + 20)}
            assert complete(server, max_tokens=1, **fields).status == 200
        lines = [line for line in server.stderr().splitlines() if "ignored" in line]
        assert len(lines) == 101 and "names no more" in lines[-1], lines
        assert all("x" * 64 not in line for line in lines)


def test_strict_fields_are_refused():
    with Server("--strict-fields") as server:
        for path, body in [(CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "x"}),
                           ("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [5]})]:
            answer = server.post(path, body | {"model": NAME, "unheard_of": 1})
            assert answer.status == 400 and answer.error()["param"] == "unheard_of", answer


def test_fields_that_would_change_the_answer_are_still_refused(server):
    answer = complete(server, use_beam_search=True)
    assert answer.status == 400 and answer.error()["param"] == "use_beam_search", answer


def test_the_openai_client_sees_a_fingerprint(client):
    answers = [client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=1),
               client.completions.create(model=NAME, prompt="x", max_tokens=1)]
    prints = {answer.system_fingerprint for answer in answers}
    assert len(prints) == 1 and prints.pop().startswith("fp_"), prints


def test_prompts_are_shortened(client):
    def prompt_of(prompt, **extra):
        answer = client.completions.create(
            model=NAME, prompt=prompt, max_tokens=10,
            extra_body={"return_token_ids": True, **extra})
        assert answer.usage.prompt_tokens == len(answer.choices[0].prompt_token_ids)
        return answer.choices[0].prompt_token_ids

    ids = list(range(100, 120))
    assert prompt_of(ids, truncate_prompt_tokens=3) == ids[-3:]
    assert prompt_of(ids, truncate_prompt_tokens=3, truncation_side="right") == ids[:3]
    assert prompt_of(ids, truncate_prompt_tokens=30) == ids
    whole = ids * 200  # 4000 tokens; the context has 2048
    assert prompt_of(whole, truncate_prompt_tokens=-1) == whole[-2038:]
    with pytest.raises(openai.BadRequestError):
        prompt_of(whole)


def test_a_chat_is_shortened(client):
    answer = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "boat " * 5000}], max_tokens=1,
        extra_body={"truncate_prompt_tokens": 50})
    assert answer.usage.prompt_tokens == 50


def test_bad_words_do_not_come(server):
    text = server.complete(max_tokens=60)["text"]
    words = sorted({word for word in text.split() if word.isalpha()}, key=text.count)[-3:]
    assert words
    other = server.complete(max_tokens=60, bad_words=words)["text"]
    assert not set(words) & set(other.split()), (words, other)
    assert other != text


def test_only_allowed_tokens_come(server):
    allowed = [300, 301, 302, 303]
    choice = server.complete(max_tokens=40, temperature=1.5, allowed_token_ids=allowed,
                             return_token_ids=True)
    assert len(choice["token_ids"]) == 40 and set(choice["token_ids"]) <= set(allowed)
    answer = complete(server, allowed_token_ids=[10**6])
    assert answer.status == 400 and "allowed_token_ids" in answer.error()["message"], answer


def test_a_silent_stream_gets_comments():
    """A queue of one sequence: the second stream waits behind the first and is not silent."""
    with Server("--stream-keep-alive", "1", "--max-num-seqs", "1", *SLOW) as server:
        with RawClient(server) as first, RawClient(server) as second:
            first.send(post(COMPLETIONS, ENDLESS))
            assert first.response_head()[0] == 200
            second.send(post(COMPLETIONS, ENDLESS | {"n": 1}))
            assert second.response_head()[0] == 200
            assert second.chunk() == b": keep-alive\n\n"
        server.await_idle()
