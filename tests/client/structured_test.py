"""Structured output through the openai package: every answer parses."""

import json
import re

import openai
import pytest
from pydantic import BaseModel

from serving import NAME

MESSAGES = [{"role": "user", "content": "Tell me about a fox."}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as made:
        yield made


class Animal(BaseModel):
    name: str
    legs: int
    wild: bool


ANIMAL = {"type": "object", "additionalProperties": False,
          "properties": {"kind": {"enum": ["fox", "bear"]},
                         "age": {"type": "integer", "minimum": 1, "maximum": 40}},
          "required": ["kind", "age"]}


def ask(client, **fields):
    return client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=60, **fields)


def content(client, **fields):
    return ask(client, **fields).choices[0].message.content


def test_parse_returns_the_pydantic_model(client, server):
    # The demo model rarely ends a string by itself, so a quotation mark is made likely.
    quote = server.post("/tokenize", {"model": NAME, "prompt": "\"", "add_special_tokens": False})
    answer = client.chat.completions.parse(
        model=NAME, messages=MESSAGES, max_tokens=200, temperature=0, response_format=Animal,
        logit_bias={str(token): 20 for token in quote.json()["tokens"]})
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Animal), answer


@pytest.mark.parametrize("stream", [False, True])
def test_json_schema(client, stream):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": ANIMAL}}
    if stream:
        chunks = ask(client, response_format=schema, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        text = content(client, response_format=schema)
    answer = json.loads(text)
    assert answer["kind"] in ("fox", "bear") and 1 <= answer["age"] <= 40


def test_choices_each_keep_to_the_grammar(client):
    answer = ask(client, n=4, temperature=1.5, extra_body={"guided_json": ANIMAL})
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert json.loads(choice.message.content)["kind"] in ("fox", "bear")


def test_the_fields_of_vllm_and_llama_cpp(client):
    assert content(client, extra_body={"guided_choice": ["red", "blue"]}) in ("red", "blue")
    pattern = r"[a-c]{3}-\d"
    assert re.fullmatch(pattern, content(client, extra_body={"guided_regex": pattern}))
    assert content(client, extra_body={"grammar": 'root ::= "ye" "s"'}) == "yes"
    assert content(client, extra_body={"structured_outputs": {"choice": ["one"]}}) == "one"
    assert json.loads(content(client, extra_body={"json_schema": ANIMAL}))["age"] >= 1
    done = client.completions.create(model=NAME, prompt="A fox", max_tokens=20,
                                     extra_body={"guided_regex": "(up|down)"})
    assert done.choices[0].text in ("up", "down")


def test_json_object_is_json_or_a_prefix_of_it(client):
    answer = ask(client, response_format={"type": "json_object"}).choices[0]
    assert answer.message.content.startswith("{")
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.message.content), dict)


@pytest.mark.parametrize("fields, param", [
    ({"guided_regex": "(a"}, "guided_regex"),
    ({"guided_regex": "(a|b)*a(a|b){25}"}, "guided_regex"),
    ({"guided_json": {"not": {}}}, "guided_json"),
    ({"guided_json": {"type": "string"}, "guided_regex": "a"}, "guided_regex"),
    ({"grammar": "root ::= root \"a\" | \"b\""}, "grammar"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
])
def test_bad_grammars_are_named(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body=fields)
    assert caught.value.param == param, caught.value.message


def nested(depth):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def fan_out(depth):
    names = {f"d{i}": {"type": "object", "properties": {
        "x": {"$ref": f"#/$defs/d{i + 1}"}, "y": {"$ref": f"#/$defs/d{i + 1}"}}}
        for i in range(depth)}
    return {"$defs": {**names, f"d{depth}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


# Small texts with large meanings, and large texts. None: it is served.
HOSTILE = [
    ("guided_json", nested(25), None),
    ("guided_json", fan_out(200), None),
    ("guided_json", {"anyOf": [{"const": f"value {i}"} for i in range(5000)]}, None),
    ("guided_json", {"oneOf": [{"const": i} for i in range(1000)]}, "oneOf has 1000"),
    ("guided_json", {"type": "string", "pattern": "^(a|b)*a(a|b){20}$"}, "too large"),
    ("guided_json", {"type": "string", "pattern": "((a{1,200}){1,200}){1,200}"}, "too large"),
    ("guided_json", {"type": "string", "maxLength": 10 ** 9}, "maxLength"),
    ("guided_json", {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                     "$ref": "#/$defs/a"}, "matches no text"),
    ("guided_json", {"type": "object", "properties": {
        f"p{i}": {"type": "string", "description": "x" * 80} for i in range(8000)}}, "too large"),
    ("guided_regex", "(" * 20000 + "a" + ")" * 20000, "nested deeper"),
    ("grammar", 'root ::= a\na ::= b "x"\nb ::= a "y" | "z"', "left recursive"),
    ("grammar", 'root ::= x root "a" | "b"\nx ::= "c"?', "left recursive"),
    ("grammar", 'root ::= ((("a"{1,1000}){1,1000}){1,1000}){1,1000}', "too large"),
    ("grammar", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested deeper"),
]


def test_grammars_that_explode_are_bounded(client, server):
    before = server.resident_bytes()
    for field, value, refusal in HOSTILE:
        try:
            ask(client, extra_body={field: value})
            assert refusal is None, (field, refusal)
        except openai.BadRequestError as error:
            assert refusal is not None and refusal in error.message, error.message
            assert error.param == field
    # The 1 MB schema needs some 80 MiB while it is compiled.
    assert server.resident_bytes() - before < 512 * 2 ** 20
    assert server.get("/health").status == 200
