"""Tools through the openai package: calls that are forced are valid, whole and streamed. The demo
model's template shows no tools, so the server describes them in the first message."""

import json

import openai
import pytest
from pydantic import BaseModel

from serving import NAME

MESSAGES = [{"role": "user", "content": "How is the weather?"}]


def tool(name, properties, **more):
    schema = {"type": "object", "properties": properties, "required": list(properties),
              "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


WEATHER = tool("weather", {"city": {"enum": ["Bern", "Oslo"]},
                           "days": {"type": "integer", "minimum": 1, "maximum": 7}})
CLOCK = tool("clock", {})


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as made:
        yield made


def ask(client, **fields):
    fields = {"tools": [WEATHER, CLOCK], "max_tokens": 200, **fields}
    return client.chat.completions.create(model=NAME, messages=MESSAGES, **fields)


def check(call):
    assert call.type == "function" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "clock":
        assert arguments == {}
    else:
        assert call.function.name == "weather"
        assert arguments["city"] in ("Bern", "Oslo") and 1 <= arguments["days"] <= 7


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_valid(client, seed):
    choice = ask(client, tool_choice="required", parallel_tool_calls=False, seed=seed,
                 temperature=1.5).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    assert len(choice.message.tool_calls) == 1
    check(choice.message.tool_calls[0])


def test_a_call_that_the_limit_cuts_has_the_beginning_of_its_arguments(client):
    fields = {"tool_choice": "required", "tools": [WEATHER], "parallel_tool_calls": False,
              "temperature": 0}
    whole = ask(client, **fields)
    arguments = whole.choices[0].message.tool_calls[0].function.arguments
    fields["max_tokens"] = whole.usage.completion_tokens * 3 // 4
    choice = ask(client, **fields).choices[0]
    assert choice.finish_reason == "length" and not choice.message.content
    function = choice.message.tool_calls[0].function
    assert function.name == "weather"
    assert arguments.replace(" ", "").startswith(function.arguments.replace(" ", ""))
    chunks = list(ask(client, stream=True, **fields))
    call, = (call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or [])
    assert call.function.arguments == function.arguments
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("name", ["weather", "clock"])
def test_a_named_call_is_of_that_tool(client, name):
    choice = ask(client, tool_choice={"type": "function", "function": {"name": name}}, n=2)
    for one in choice.choices:
        assert [call.function.name for call in one.message.tool_calls] == [name]
        check(one.message.tool_calls[0])


@pytest.mark.parametrize("seed", range(3))
def test_only_allowed_tools_are_called(client, seed):
    choice = ask(client, seed=seed, temperature=1.5, parallel_tool_calls=False, tool_choice={
        "type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "clock"}}]}}).choices[0]
    call, = choice.message.tool_calls
    assert call.function.name == "clock"
    answer = client.responses.create(
        model=NAME, input="What is the time?", max_output_tokens=200, tools=[
            {"type": "function", "strict": True, **one["function"]} for one in (WEATHER, CLOCK)],
        tool_choice={"type": "allowed_tools", "mode": "required",
                     "tools": [{"type": "function", "name": "clock"}]})
    assert {item.name for item in answer.output if item.type == "function_call"} == {"clock"}


def test_a_forced_call_is_streamed(client):
    chunks = list(ask(client, tool_choice="required", parallel_tool_calls=False, stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert len(calls) == 1 and calls[0].index == 0
    check(calls[0])
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


def test_strict_tools_of_pydantic_models_are_parsed(client):
    class Weather(BaseModel):
        days: bool

    answer = client.chat.completions.parse(
        model=NAME, messages=MESSAGES, max_tokens=200, tool_choice="required",
        parallel_tool_calls=False, tools=[openai.pydantic_function_tool(Weather)])
    parsed = answer.choices[0].message.tool_calls[0].function.parsed_arguments
    assert isinstance(parsed, Weather)


def test_tools_that_may_be_called_leave_text_free(client):
    strict = tool("clock", {}, strict=True)
    choice = ask(client, tools=[strict], parallel_tool_calls=False, max_tokens=20).choices[0]
    assert choice.message.content or choice.message.tool_calls


@pytest.mark.parametrize("fields, param", [
    ({"tool_choice": "required", "tools": []}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"type": "function", "function": {"name": "x"}}]}}},
     "tool_choice.allowed_tools.tools[0]"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any", "tools": []}}},
     "tool_choice.allowed_tools.mode"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    ({"tool_choice": "required", "tools": [tool("f", {"a": {"not": {}}})]}, "tools"),
    ({"tool_choice": "required", "tools": [tool("f g", {})]}, "tools"),
])
def test_what_cannot_be_forced_is_refused_by_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param, caught.value.message


@pytest.mark.parametrize("first", ["<", "{"])
def test_beside_tools_a_schema_allows_calls_or_the_schema(client, server, first):
    tokens = server.post("/tokenize", {"model": NAME, "prompt": first, "add_special_tokens": False})
    schema = {"type": "object", "properties": {"fox": {"enum": [1, 2]}}, "required": ["fox"],
              "additionalProperties": False}
    choice = ask(client, temperature=0, parallel_tool_calls=False,
                 tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": True}}],
                 logit_bias={str(token): 100 for token in tokens.json()["tokens"]},
                 response_format={"type": "json_schema",
                                  "json_schema": {"name": "x", "schema": schema}}).choices[0]
    if first == "<":
        assert choice.finish_reason == "tool_calls" and not choice.message.content
        check(choice.message.tool_calls[0])
    else:
        assert choice.finish_reason == "stop" and not choice.message.tool_calls
        assert json.loads(choice.message.content)["fox"] in (1, 2)


def test_a_forced_call_wins_over_a_schema(client):
    choice = ask(client, tool_choice="required", response_format={"type": "json_object"}).choices[0]
    assert choice.finish_reason == "tool_calls"
    check(choice.message.tool_calls[0])
