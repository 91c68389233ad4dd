"""OpenAI's /v1/responses through the openai package: text, streams, tools, schemas, refusals."""

import json

import openai
import pytest
from pydantic import BaseModel

from serving import NAME

TOOL = {"type": "function", "name": "animal", "description": "An animal.", "strict": True,
        "parameters": {"type": "object", "required": ["kind"], "additionalProperties": False,
                       "properties": {"kind": {"enum": ["fox", "bear"]}}}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as made:
        yield made


def ask(client, **fields):
    return client.responses.create(**{"model": NAME, "input": "Tell me about a fox.",
                                      "max_output_tokens": 12, "temperature": 0, **fields})


def test_a_response(client, server):
    answer = ask(client, instructions="You tell stories.")
    assert answer.id.startswith("resp_") and answer.object == "response"
    assert answer.status in ("completed", "incomplete")
    if answer.status == "incomplete":
        assert answer.incomplete_details.reason == "max_output_tokens"
    chat = server.post("/v1/chat/completions", {
        "model": NAME, "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "system", "content": "You tell stories."},
                     {"role": "user", "content": "Tell me about a fox."}]}).json()
    assert answer.output_text == chat["choices"][0]["message"]["content"]
    assert answer.usage.input_tokens == chat["usage"]["prompt_tokens"]
    assert answer.usage.output_tokens == chat["usage"]["completion_tokens"]
    assert answer.instructions == "You tell stories." and answer.temperature == 0


def test_a_stream_is_the_same_response(client):
    whole = ask(client)
    events = list(ask(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response." + whole.status
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens


def test_the_clients_stream_helper(client):
    with client.responses.stream(model=NAME, input="A fox", max_output_tokens=100, tools=[TOOL],
                                 tool_choice={"type": "function", "name": "animal"}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert final.output[0].parsed_arguments["kind"] in ("fox", "bear")


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_tool(client, stream):
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False,
              "max_output_tokens": 100}
    if stream:
        answer = list(ask(client, stream=True, **fields))[-1].response
    else:
        answer = ask(client, **fields)
    (call,) = answer.output
    assert call.type == "function_call" and call.name == "animal"
    assert json.loads(call.arguments)["kind"] in ("fox", "bear")
    # The items go back as the input of the next call.
    history = [{"role": "user", "content": "A fox?"}, call.model_dump(),
               {"type": "function_call_output", "call_id": call.call_id, "output": "It is red."}]
    assert ask(client, input=history, tools=[TOOL], max_output_tokens=4).usage.output_tokens > 0


def test_a_parsed_schema(client):
    class Animal(BaseModel):
        wild: bool
        legs: int

    answer = client.responses.parse(model=NAME, input="A fox.", max_output_tokens=100,
                                    text_format=Animal)
    assert isinstance(answer.output_parsed, Animal)


@pytest.mark.parametrize("fields, param", [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"store": True}, "store"),
    ({"background": True}, "background"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
])
def test_the_rest_is_refused_by_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param


def test_auto_truncation_cuts_the_beginning(client, server):
    long = "Tell me about a fox. " * 2000
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, input=long)
    assert refused.value.code == "context_length_exceeded"
    answer = ask(client, input=long, truncation="auto")
    assert answer.truncation == "auto" and answer.output_text
    models = server.get("/v1/models").json()["data"]
    assert answer.usage.input_tokens == models[0]["max_model_len"] - 12
    assert ask(client).truncation == "disabled"
