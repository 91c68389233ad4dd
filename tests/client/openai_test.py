"""Every endpoint as the `openai` client uses it: shapes, sampling fields, logprobs, streams."""

import json
import math
import subprocess

import openai
import pytest

from serving import BINARY, MODEL, NAME

MESSAGES = [{"role": "user", "content": "Tell me a story about a fox and a lantern."}]
PROMPT = "Once upon a time, a small fox"


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as made:
        yield made


def chat(client, **fields):
    given = {"model": NAME, "messages": MESSAGES, "max_completion_tokens": 24, "temperature": 0}
    return client.chat.completions.create(**(given | fields))


def complete(client, **fields):
    given = {"model": NAME, "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    return client.completions.create(**(given | fields))


def streamed(chunks):
    """(text per choice, finish reason per choice, usage) of a stream, of either kind."""
    texts, reasons, usage = {}, {}, None
    for chunk in chunks:
        if chunk.usage is not None:
            usage = chunk.usage
        for choice in chunk.choices:
            piece = choice.delta.content if hasattr(choice, "delta") else choice.text
            assert choice.index not in reasons, "text after the end of a choice"
            texts[choice.index] = texts.get(choice.index, "") + (piece or "")
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    return texts, reasons, usage


# ---------------------------------------------------------------- models


def test_models(client):
    cards = client.models.list().data
    assert [card.id for card in cards] == [NAME]
    assert cards[0].object == "model" and cards[0].created > 1_500_000_000
    assert client.models.retrieve(NAME).id == NAME
    assert cards[0].model_extra["max_model_len"] == 2048


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-x")
    assert caught.value.code == "model_not_found"
    for call in (chat, complete):
        with pytest.raises(openai.NotFoundError) as caught:
            call(client, model="gpt-x")
        assert caught.value.code == "model_not_found" and "gpt-x" in caught.value.message


# ---------------------------------------------------------------- completions


def test_completion_of_a_string(client):
    answer = complete(client)
    assert answer.object == "text_completion" and answer.model == NAME
    assert answer.id.startswith("cmpl-")
    choice = answer.choices[0]
    assert choice.text and choice.finish_reason in ("length", "stop") and choice.logprobs is None
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens <= 24


def test_completion_of_several_prompts(client):
    """Strings and lists of ids, n choices each: the choices come in order of the prompts."""
    prompts = [PROMPT, "The old owl said"]
    both = complete(client, prompt=prompts, max_tokens=12)
    assert [choice.index for choice in both.choices] == [0, 1]
    for text, choice in zip(prompts, both.choices):
        assert choice.text == complete(client, prompt=text, max_tokens=12).choices[0].text
    twice = complete(client, prompt=prompts, n=2, max_tokens=12)
    assert [choice.index for choice in twice.choices] == [0, 1, 2, 3]
    # Greedy: the choices of one prompt agree.
    assert [c.text for c in twice.choices] == [both.choices[i // 2].text for i in range(4)]


def test_completion_of_token_ids(client, server):
    ids = server.post("/tokenize", {"model": NAME, "prompt": PROMPT}).json()["tokens"]
    expected = complete(client).choices[0].text
    assert complete(client, prompt=ids).choices[0].text == expected
    both = complete(client, prompt=[ids, ids[:3]])
    assert both.choices[0].text == expected and both.choices[1].text != expected
    assert both.usage.prompt_tokens == len(ids) + 3


def test_greedy_text_is_that_of_the_command_line(client, server):
    ids = server.post("/tokenize", {"model": NAME, "prompt": PROMPT}).json()["tokens"]
    offline = subprocess.run(
        [BINARY, "generate", MODEL, "--prompt-ids", ",".join(map(str, ids)), "--max-tokens", "40",
         "--temperature", "0", "--threads", "2", "--json"],
        capture_output=True, check=True, timeout=60)
    expected = json.loads(offline.stdout)
    answer = complete(client, prompt=ids, max_tokens=40, extra_body={"return_token_ids": True})
    assert answer.choices[0].text == expected["text"]
    assert answer.choices[0].model_extra["token_ids"] == expected["output_tokens"]
    assert answer.choices[0].finish_reason == expected["finish_reason"]


def test_echo_puts_the_prompt_in_front(client):
    plain, echoed = complete(client), complete(client, echo=True)
    assert echoed.choices[0].text == PROMPT + plain.choices[0].text


def test_stop_strings_are_left_out(client):
    text = complete(client, max_tokens=60).choices[0].text
    stop = text[len(text) // 3:len(text) // 3 + 5]
    answer = complete(client, max_tokens=60, stop=["no such words", stop])
    assert answer.choices[0].text == text[:text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].model_extra["stop_reason"] == stop
    texts, reasons, _ = streamed(complete(client, max_tokens=60, stop=stop, stream=True))
    assert texts[0] == text[:text.index(stop)] and reasons[0] == "stop"


def test_completion_logprobs(client):
    answer = complete(client, logprobs=3, max_tokens=10, echo=False)
    logprobs = answer.choices[0].logprobs
    count = answer.usage.completion_tokens
    for part in (logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs,
                 logprobs.text_offset):
        assert len(part) == count
    assert "".join(logprobs.tokens).startswith(answer.choices[0].text)
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert value <= 0 and 3 <= len(top) <= 4
        assert math.isclose(top[token], value, abs_tol=1e-6)
        assert value == max(top.values())  # greedy
        assert sum(math.exp(x) for x in top.values()) < 1.0001
    offsets = logprobs.text_offset
    assert offsets[0] == 0 and offsets == sorted(offsets)
    # The text at the first offsets is that of the tokens.
    assert answer.choices[0].text[offsets[1]:].startswith(logprobs.tokens[1])


def test_seed_decides_the_text(client):
    def text(**fields):
        return complete(client, temperature=1.0, max_tokens=40, **fields).choices[0].text
    first = text(seed=11)
    assert first == text(seed=11)
    assert first != text(seed=12)
    # Without a seed every call draws its own.
    assert len({text() for _ in range(3)}) > 1


def test_choices_of_one_seed_differ_and_repeat(client):
    def texts(**fields):
        answer = complete(client, temperature=1.0, max_tokens=30, seed=5, **fields)
        return [choice.text for choice in answer.choices]
    four = texts(n=4)
    assert len(set(four)) == 4 and texts(n=4) == four
    assert texts(n=1) == four[:1]  # choice k depends on (seed, k) alone


def test_logit_bias_forces_and_bans(client, server):
    first = complete(client, max_tokens=1, extra_body={"return_token_ids": True})
    banned = first.choices[0].model_extra["token_ids"][0]
    other = complete(client, max_tokens=1, logit_bias={str(banned): -100},
                     extra_body={"return_token_ids": True})
    assert other.choices[0].model_extra["token_ids"][0] != banned
    forced = complete(client, max_tokens=5, logit_bias={"300": 100},
                      extra_body={"return_token_ids": True})
    assert forced.choices[0].model_extra["token_ids"] == [300] * 5


def test_completion_stream_equals_the_whole(client):
    fields = {"temperature": 0.9, "seed": 3, "max_tokens": 60}
    whole = complete(client, **fields)
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}, **fields))
    texts, reasons, usage = streamed(chunks)
    assert texts == {0: whole.choices[0].text}
    assert reasons == {0: whole.choices[0].finish_reason}
    assert len(chunks) > 10, "the text did not come in pieces"
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert chunks[-1].choices == [] and len({chunk.id for chunk in chunks}) == 1


# ---------------------------------------------------------------- chat


def test_chat(client):
    answer = chat(client)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length" and answer.usage.completion_tokens == 24


def test_chat_ends_by_itself(client):
    answer = chat(client, messages=[{"role": "user", "content": "What is 3 plus 4?"}])
    assert answer.choices[0].finish_reason == "stop"
    assert "seven" in answer.choices[0].message.content or "7" in answer.choices[0].message.content


def test_chat_stream_equals_the_whole(client):
    fields = {"temperature": 0.9, "seed": 3, "max_completion_tokens": 60, "n": 2}
    whole = chat(client, **fields)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}, **fields))
    texts, reasons, usage = streamed(chunks)
    assert texts == {c.index: c.message.content for c in whole.choices}
    assert reasons == {c.index: c.finish_reason for c in whole.choices}
    assert texts[0] != texts[1]
    assert usage.completion_tokens == whole.usage.completion_tokens
    roles = [c.delta.role for chunk in chunks for c in chunk.choices if c.delta.role]
    assert roles == ["assistant", "assistant"], "the role comes once per choice"
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[0].object == "chat.completion.chunk"


def test_stream_without_usage_has_none(client):
    assert all(chunk.usage is None for chunk in chat(client, stream=True))


def test_continuous_usage_counts_up(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True},
                       extra_body={"stream_options": {"include_usage": True,
                                                      "continuous_usage_stats": True}}))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 24 and counts[0] <= 2


def test_stream_helper_of_the_client(client):
    """The client's own accumulator accepts our chunks."""
    messages = [{"role": "user", "content": "What is 3 plus 4?"}]
    with client.chat.completions.stream(model=NAME, messages=messages, temperature=0) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == \
        chat(client, messages=messages).choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs(client, stream):
    answer = chat(client, logprobs=True, top_logprobs=4, max_completion_tokens=12, stream=stream)
    if stream:
        parts = [choice for chunk in answer for choice in chunk.choices]
        text = "".join(part.delta.content or "" for part in parts)
        content = [token for part in parts if part.logprobs for token in part.logprobs.content]
    else:
        text = answer.choices[0].message.content
        content = answer.choices[0].logprobs.content
    assert len(content) == 12
    assert b"".join(bytes(token.bytes) for token in content).decode() == text
    for token in content:
        assert len(token.top_logprobs) == 4
        values = [top.logprob for top in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert token.token == token.top_logprobs[0].token and token.logprob == values[0]


def test_chat_logprobs_without_top(client):
    content = chat(client, logprobs=True, max_completion_tokens=3).choices[0].logprobs.content
    assert len(content) == 3 and all(token.top_logprobs == [] for token in content)


def test_chat_stop_and_seed(client):
    text = chat(client, max_completion_tokens=60).choices[0].message.content
    stop = text[20:26]
    cut = chat(client, max_completion_tokens=60, stop=stop).choices[0]
    assert cut.message.content == text[:text.index(stop)] and cut.finish_reason == "stop"
    one, two = (chat(client, seed=4, temperature=1.0).choices[0].message.content for _ in "ab")
    assert one == two


def test_penalties_change_the_text(client):
    """Each penalty works, and in its direction: fewer words are said twice."""
    def repeats(**fields):
        answer = chat(client, max_completion_tokens=120, **fields)
        words = answer.choices[0].message.content.split()
        return len(words) - len(set(words))
    plain = repeats()
    assert repeats(frequency_penalty=1.5) < plain
    assert repeats(presence_penalty=1.5) < plain
    assert repeats(extra_body={"repetition_penalty": 1.4}) < plain


def test_max_tokens_by_either_name(client):
    assert chat(client, max_completion_tokens=5).usage.completion_tokens == 5
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=6)
    assert answer.usage.completion_tokens == 6


def test_system_prompt_and_history_count(client):
    short = chat(client, max_completion_tokens=1).usage.prompt_tokens
    longer = chat(client, max_completion_tokens=1, messages=[
        {"role": "system", "content": "You are a story teller."}, *MESSAGES,
        {"role": "assistant", "content": "No."}, *MESSAGES]).usage.prompt_tokens
    assert longer > 2 * short


def test_content_in_parts(client):
    """A list of text parts says the same as one string."""
    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    assert chat(client, messages=parts).choices[0].message.content == \
        chat(client).choices[0].message.content


def test_cached_prompt_tokens_are_reported(client):
    messages = [{"role": "user", "content": "A long prompt. " * 60 + "What is it about?"}]
    first = chat(client, messages=messages, max_completion_tokens=1).usage
    again = chat(client, messages=messages, max_completion_tokens=1).usage
    assert first.prompt_tokens_details is None or first.prompt_tokens_details.cached_tokens == 0
    cached = again.prompt_tokens_details.cached_tokens
    assert 0 < cached < again.prompt_tokens and cached % 16 == 0
    salted = chat(client, messages=messages, max_completion_tokens=1,
                  extra_body={"cache_salt": "another tenant"}).usage
    assert not (salted.prompt_tokens_details and salted.prompt_tokens_details.cached_tokens)


# ---------------------------------------------------------------- vLLM's extras


def test_extra_sampling_fields(client):
    plain = chat(client).choices[0].message.content
    # With one candidate left, sampling is greedy.
    for extra in ({"top_k": 1}, {"min_p": 1.0}):
        answer = chat(client, temperature=1.0, seed=1, extra_body=extra)
        assert answer.choices[0].message.content == plain
    assert chat(client, temperature=1.0, seed=1, top_p=1e-6).choices[0].message.content == plain


def test_min_tokens_and_ignore_eos(client):
    question = [{"role": "user", "content": "What is 3 plus 4?"}]
    short = chat(client, messages=question, max_completion_tokens=100).usage.completion_tokens
    assert short < 40
    longer = chat(client, messages=question, max_completion_tokens=100,
                  extra_body={"min_tokens": 50})
    assert longer.usage.completion_tokens >= 50
    endless = chat(client, messages=question, max_completion_tokens=100,
                   extra_body={"ignore_eos": True})
    assert endless.usage.completion_tokens == 100
    assert endless.choices[0].finish_reason == "length"


def test_stop_strings_count_behind_min_tokens(client):
    text = complete(client, max_tokens=60).choices[0].text
    stop = text[:2]
    assert complete(client, max_tokens=60, stop=stop).usage.completion_tokens <= 2
    longer = complete(client, max_tokens=60, stop=stop, extra_body={"min_tokens": 20})
    assert longer.usage.completion_tokens >= 20 and text.startswith(longer.choices[0].text)


def test_stop_token_ids_and_return_token_ids(client, server):
    answer = chat(client, extra_body={"return_token_ids": True})
    ids = answer.choices[0].model_extra["token_ids"]
    assert len(ids) == 24
    prompt = (answer.model_extra or {}).get("prompt_token_ids") or \
        answer.choices[0].model_extra.get("prompt_token_ids")
    assert len(prompt) == answer.usage.prompt_tokens
    stopped = chat(client, extra_body={"return_token_ids": True, "stop_token_ids": [ids[7]]})
    assert stopped.choices[0].finish_reason == "stop"
    kept = ids[:ids.index(ids[7]) + 1]
    assert stopped.choices[0].model_extra["token_ids"] == kept

    def text_of(tokens):
        return server.post("/detokenize", {"model": NAME, "tokens": tokens}).json()["prompt"]

    # Like a stop string the id that ended the choice is no text of it, unless asked for.
    assert stopped.choices[0].message.content == text_of(kept[:-1])
    included = chat(client, extra_body={"stop_token_ids": [ids[7]],
                                        "include_stop_str_in_output": True})
    assert included.choices[0].message.content == text_of(kept)


def test_priority_and_user_are_taken(client):
    plain = chat(client).choices[0].message.content
    answer = chat(client, user="someone", extra_body={"priority": 3})
    assert answer.choices[0].message.content == plain


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("fields, param", [
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"n": 0}, "n"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"presence_penalty": 7}, "presence_penalty"),
    ({"stop": [""]}, "stop[0]"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 1000}}, "logit_bias.5"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"extra_body": {"guided_json": 5}}, "guided_json"),
    ({"extra_body": {"guided_regex": "(a"}}, "guided_regex"),
    ({"extra_body": {"top_k": -7}}, "top_k"),
    ({"extra_body": {"min_p": 2}}, "min_p"),
    ({"extra_body": {"stop_token_ids": ["x"]}}, "stop_token_ids[0]"),
    ({"extra_body": {"stop_token_ids": [99999]}}, "stop_token_ids"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
])
def test_bad_chat_fields_are_named(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **fields)
    error = caught.value
    assert error.param == param, error.message
    assert error.type == "invalid_request_error" and error.status_code == 400
    assert param in error.message, "the message alone says which field"


def test_too_long_a_prompt_says_so(client):
    messages = [{"role": "user", "content": "A fox and a lantern. " * 800}]
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, messages=messages)
    assert caught.value.code == "context_length_exceeded"
    assert "2048" in caught.value.message


def test_max_tokens_beyond_the_context_end_with_it(client):
    answer = complete(client, max_tokens=5000, extra_body={"ignore_eos": True})
    assert answer.usage.total_tokens == 2048 and answer.choices[0].finish_reason == "length"


def test_token_ids_beyond_the_vocabulary_are_refused(client):
    for prompt in ([5, 10_000_000], [-1]):
        with pytest.raises(openai.BadRequestError) as caught:
            complete(client, prompt=prompt)
        assert caught.value.param.startswith("prompt")
