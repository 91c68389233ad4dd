"""Log-probabilities of prompts, as evaluation programs ask for them."""

import math

import openai
import pytest

from serving import NAME, demo_server

PROMPTS = ["Once upon a time, a small fox went to the sea.", "The boat", "a"]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as made:
        yield made


def complete(client, prompt, **fields):
    return client.completions.create(
        **({"model": NAME, "prompt": prompt, "max_tokens": 4, "temperature": 0} | fields))


def next_token_logprob(client, ids, token):
    """The oracle: the token is the only one allowed behind `ids`."""
    answer = complete(client, ids, max_tokens=1, logprobs=0,
                      extra_body={"allowed_token_ids": [token]})
    return answer.choices[0].logprobs.token_logprobs[0]


def test_an_echo_has_the_likelihood_of_each_token(client):
    for prompt in PROMPTS:
        answer = complete(client, prompt, echo=True, logprobs=1,
                          extra_body={"return_token_ids": True})
        choice = answer.choices[0]
        ids = choice.prompt_token_ids
        found = choice.logprobs
        assert choice.text.startswith(prompt)
        assert len(found.tokens) == len(ids) + answer.usage.completion_tokens
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        for i in range(1, len(ids)):
            expected = next_token_logprob(client, ids[:i], ids[i])
            assert found.token_logprobs[i] == expected, (prompt, i)
            assert max(found.top_logprobs[i].values()) >= expected
        assert found.text_offset == sorted(found.text_offset)
        assert all(math.isfinite(x) for x in found.token_logprobs[1:])


def test_max_tokens_0_is_about_the_prompt_alone(client):
    with_output = complete(client, PROMPTS[0], echo=True, logprobs=2).choices[0].logprobs
    answer = complete(client, PROMPTS[0], echo=True, logprobs=2, max_tokens=0)
    assert answer.choices[0].text == PROMPTS[0] and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 0
    alone = answer.choices[0].logprobs
    assert alone.token_logprobs == with_output.token_logprobs[:len(alone.token_logprobs)]
    assert len(with_output.tokens) == len(alone.tokens) + 4
    with pytest.raises(openai.BadRequestError):
        complete(client, PROMPTS[0], max_tokens=0)


def test_prompt_logprobs_of_completions_and_chats(client):
    answer = complete(client, PROMPTS[0], max_tokens=1, n=2,
                      extra_body={"prompt_logprobs": 3, "return_token_ids": True})
    echo = complete(client, PROMPTS[0], max_tokens=0, echo=True, logprobs=3).choices[0].logprobs
    for choice in answer.choices:
        assert choice.prompt_logprobs[0] is None
        for i, token in enumerate(choice.prompt_token_ids[1:], start=1):
            entry = choice.prompt_logprobs[i]
            assert list(entry)[0] == str(token) and len(entry) in (3, 4)
            assert entry[str(token)]["logprob"] == echo.token_logprobs[i]
            assert entry[str(token)]["decoded_token"] == echo.tokens[i]
            assert {1, 2, 3} <= {one["rank"] for one in entry.values()}
    chat = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hello"}], max_tokens=1,
        extra_body={"prompt_logprobs": 0, "return_token_ids": True})
    assert len(chat.prompt_logprobs) == len(chat.prompt_token_ids)
    with pytest.raises(openai.BadRequestError):
        complete(client, "x", stream=True, extra_body={"prompt_logprobs": 1})


def test_a_stream_echoes_the_prompt_with_its_likelihoods(client):
    whole = complete(client, PROMPTS[0], echo=True, logprobs=1).choices[0]
    text, logprobs = "", []
    for chunk in complete(client, PROMPTS[0], echo=True, logprobs=1, stream=True):
        text += chunk.choices[0].text
        if chunk.choices[0].logprobs:
            logprobs += chunk.choices[0].logprobs.token_logprobs
    assert text == whole.text and logprobs == whole.logprobs.token_logprobs


def test_long_prompts_beside_each_other(client, server):
    """Chunks of many requests share the room for scores, and nothing comes from the cache."""
    prompts = [[100 + (7 * i * k) % 2000 for i in range(700 + 50 * k)] for k in range(1, 6)]
    alone = [complete(client, prompt, max_tokens=0, echo=True, logprobs=0) for prompt in prompts]
    together = complete(client, prompts, max_tokens=0, echo=True, logprobs=0)
    for one, choice in zip(alone, together.choices):
        assert one.choices[0].logprobs == choice.logprobs
    assert together.usage.prompt_tokens_details.cached_tokens == 0
    server.await_idle()


def test_policies_that_never_split_prompts_refuse():
    with demo_server("--scheduler", "prefill-first") as server:
        answer = server.post("/v1/completions", {"model": NAME, "prompt": "a b c", "max_tokens": 0,
                                                 "echo": True, "logprobs": 0})
        assert answer.status == 501 and "stall-free" in answer.error()["message"], answer
