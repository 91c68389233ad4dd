"""Makes the document of the API one from which only acceptable requests are drawn: the facts of one
model and one tokenizer, texts of languages that JSON Schema does not know, and the few rules
between fields that it cannot say."""

from serving import NAME

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
           "required": ["a"]}
_TEXT = {"type": "string", "minLength": 1}  # this tokenizer makes no token of an empty text
_FIELDS = {
    "model": {"const": NAME},
    "n": {"type": "integer", "minimum": 1, "maximum": 2},
    "max_tokens": {"type": "integer", "minimum": 1, "maximum": 8},
    "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 8},
    "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": 8},
    "min_tokens": {"enum": [0, 1]},  # at most max_tokens
    "best_of": {"type": "null"},  # equal to n
    "timeout": {"type": "number", "minimum": 60, "maximum": 86400},
    "dimensions": {"type": "integer", "minimum": 1, "maximum": 8},
}
_DAYS = {"start_date": "2026-11-01", "end_date": "2026-11-02"}  # in their order
_STRUCTURES = ["structured_outputs", "guided_json", "guided_regex", "guided_choice",
               "guided_grammar", "json_schema", "grammar", "response_format"]
# The drawer gives up on many rules about one body, so each body keeps some of the fields.
_LEFT_OUT = {
    "/v1/chat/completions": {*_STRUCTURES, "max_tokens", "add_generation_prompt",
                             "prompt_logprobs", "stream_options"} - {"response_format",
                                                                     "guided_json"},
    "/v1/completions": {*_STRUCTURES} - {"structured_outputs", "grammar"},
}


def _bodies(document):
    for path, item in document["paths"].items():
        operation = item.get("post", item.get("put", {}))
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            yield path, content["application/json"]["schema"]


def _fill_schemas(schemas):
    schemas["JsonSchema"] = {"enum": [_SCHEMA, {"type": "object"}]}
    schemas["SchemaText"] = {"enum": ['{"type": "integer"}']}
    schemas["JsonText"] = {"enum": ["{}", '{"a": 1}']}
    schemas["RegularExpression"] = {"enum": ["[a-z]{1,4}", "yes|no"]}
    schemas["Grammar"] = {"enum": ['root ::= "a" root | "b"']}
    schemas["ToolName"] = {"const": "probe"}  # the same in tools and in tool_choice
    schemas["TokenId"]["maximum"] = 255
    schemas["Texts"]["anyOf"] = [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]
    schemas["Prompt"]["anyOf"][0] = _TEXT
    schemas["Prompt"]["anyOf"][2]["items"] = _TEXT
    # The demo model's template knows these roles, and no results of tools.
    schemas["Message"]["properties"]["role"] = {"enum": ["system", "user", "assistant"]}
    for turn in schemas["Turn"]["anyOf"]:
        blocks = turn["properties"]["content"]["anyOf"][1]["items"]["anyOf"]
        blocks[:] = [block for block in blocks
                     if not block["$ref"].endswith(("/ToolUse", "/ToolResult"))]
    items = schemas["InputItem"]["anyOf"]
    items[:] = [item for item in items
                if item["properties"]["type"].get("const") != "function_call_output"]


def _asks(branch):
    asked = {("required", name) for name in branch.get("required", [])}
    return asked | {(name, repr(value)) for name, value in branch["properties"].items()}


def _trimmed(rule, left_out):
    """The rule for the fields that stay; None: it always holds."""
    kept = []
    for branch in rule["anyOf"]:
        branch["properties"] = {name: value for name, value in branch["properties"].items()
                                if name not in left_out or name in branch.get("required", [])}
        if not _asks(branch):
            return None
        kept.append(branch)
    # A branch that asks for more than another one is needless.
    kept = [branch for i, branch in enumerate(kept)
            if not any(_asks(other) < _asks(branch)
                       or (_asks(other) == _asks(branch) and j < i)
                       for j, other in enumerate(kept))]
    return {"anyOf": kept}


def _bounded(schema, most):
    for one in (schema, *schema.get("anyOf", [])):
        if "items" in one:
            one["maxItems"] = most


def _fill_body(path, schema):
    properties = schema["properties"]
    if path in ("/tokenize", "/detokenize"):
        schema.setdefault("required", []).append("model")  # a gateway has several models
    for name, sample in _FIELDS.items():
        if name in properties:
            properties[name] = sample
    # Else an answer goes on to the end of the context.
    schema.setdefault("required", []).extend(
        {"max_completion_tokens", "max_output_tokens"} & properties.keys())
    left_out = _LEFT_OUT.get(path, set())
    for name in left_out:
        properties[name] = {"type": "null"}
    rules = [_trimmed(rule, left_out) for rule in schema.pop("allOf", [])]
    rules = [rule for rule in rules if rule is not None]
    if rules:
        schema["allOf"] = rules
    # Few, so that they fit into the context.
    for name, most in (("tools", 2), ("messages", 3)):
        if properties.get(name, {}):
            _bounded(properties[name], most)
    if path.startswith("/v1/kv/prefixes"):
        # At least one block, and little of the memory that all pins may need.
        properties["prompt"] = {"type": "array", "minItems": 16, "maxItems": 32,
                                "items": {"type": "integer", "minimum": 0, "maximum": 255}}
        properties["messages"] = properties["tools"] = {"type": "null"}
        properties["ttl_seconds"] = {"type": "integer", "minimum": 1, "maximum": 2}
    if path.endswith("rerank"):
        properties["query"] = _TEXT
        properties["documents"] = {"type": "array", "minItems": 1, "items": _TEXT}
    if path.endswith("score"):
        properties["queries"] = properties["text_1"] = _TEXT  # one text, or as many as documents


def fill(document):
    _fill_schemas(document["components"]["schemas"])
    for path, schema in _bodies(document):
        _fill_body(path, schema)
    for one in document["paths"].get("/v1/usage", {}).get("get", {}).get("parameters", []):
        if one["name"] in _DAYS:
            one["schema"] = {"const": _DAYS[one["name"]]}
    return document
