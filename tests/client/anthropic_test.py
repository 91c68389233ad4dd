"""The Anthropic API through its own client: messages, streams, tools, token counts, errors."""

import json

import anthropic
import pytest

from serving import NAME, demo_server

MESSAGES = [{"role": "user", "content": "Tell me about a fox."}]
SCHEMA = {"type": "object", "required": ["kind"], "additionalProperties": False,
          "properties": {"kind": {"enum": ["fox", "bear"]}}}
# Newer versions of the client have no parameter for it.
GREEDY = {"temperature": 0}
TOOL = {"name": "animal", "description": "An animal.", "input_schema": SCHEMA}


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.base, api_key=server.key, max_retries=0) as made:
        yield made


def ask(client, **fields):
    return client.messages.create(**{"model": NAME, "messages": MESSAGES, "max_tokens": 12,
                                     "extra_body": GREEDY, **fields})


def test_a_message(client, server):
    answer = ask(client, system="You tell stories.")
    assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_")
    assert [block.type for block in answer.content] == ["text"]
    assert answer.stop_reason in ("max_tokens", "end_turn")
    chat = server.post("/v1/chat/completions", {
        "model": NAME, "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "system", "content": "You tell stories."}, *MESSAGES]}).json()
    assert answer.content[0].text == chat["choices"][0]["message"]["content"]
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
    assert usage.output_tokens == chat["usage"]["completion_tokens"]


def test_a_stream_is_the_same_message(client):
    whole = ask(client, system=[{"type": "text", "text": "You tell stories."}])
    with client.messages.stream(model=NAME, messages=MESSAGES, max_tokens=12,
                                extra_body=GREEDY, system="You tell stories.") as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences(client):
    text = ask(client).content[0].text
    stop = text.split()[2]
    answer = ask(client, stop_sequences=[stop])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == stop
    assert text.startswith(answer.content[0].text if answer.content else "")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "animal"}])
def test_a_forced_tool(client, choice):
    answer = ask(client, tools=[TOOL], max_tokens=100,
                 tool_choice={**choice, "disable_parallel_tool_use": True})
    assert answer.stop_reason == "tool_use"
    (block,) = answer.content
    assert block.type == "tool_use" and block.name == "animal"
    assert block.input["kind"] in ("fox", "bear")


def test_a_forced_tool_is_streamed(client):
    with client.messages.stream(model=NAME, messages=MESSAGES, max_tokens=100, tools=[TOOL],
                                tool_choice={"type": "tool", "name": "animal"}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert "input_json" in kinds and kinds[-1] == "message_stop"
    assert final.content[0].input["kind"] in ("fox", "bear")


def test_results_of_tools_are_read(client):
    history = [*MESSAGES,
               {"role": "assistant", "content": [
                   {"type": "tool_use", "id": "t1", "name": "animal", "input": {"kind": "fox"}}]},
               {"role": "user", "content": [
                   {"type": "tool_result", "tool_use_id": "t1", "content": "It is red."}]}]
    assert ask(client, messages=history, tools=[TOOL], max_tokens=4).usage.output_tokens > 0


def test_structured_output(client):
    answer = ask(client, max_tokens=60, extra_body={
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    assert json.loads(answer.content[0].text)["kind"] in ("fox", "bear")


def test_tokens_are_counted(client):
    counted = client.messages.count_tokens(model=NAME, messages=MESSAGES,
                                           system="You tell stories.")
    usage = ask(client, system="You tell stories.", max_tokens=1).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


@pytest.mark.parametrize("fields, error, text", [
    ({"model": "other"}, anthropic.NotFoundError, "no model"),
    ({"extra_body": {"temperature": -1}}, anthropic.BadRequestError, "temperature"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
     anthropic.BadRequestError, "tools[0].type"),
])
def test_errors_have_anthropics_shape(client, fields, error, text):
    with pytest.raises(error) as caught:
        ask(client, **fields)
    assert caught.value.body["type"] == "error"
    assert text in caught.value.body["error"]["message"]


def test_keys_come_in_their_own_header():
    key = "key-of-a-test-1"
    with demo_server(api_key=key) as server:
        with anthropic.Anthropic(base_url=server.base, api_key=key, max_retries=0) as client:
            assert ask(client, max_tokens=1).usage.output_tokens == 1
        with anthropic.Anthropic(base_url=server.base, api_key="x" * 12, max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError) as caught:
                ask(client)
            assert caught.value.body["error"]["type"] == "authentication_error"
