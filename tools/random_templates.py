"""Random inputs for compare_templates.py: conversations for real templates, and small programs."""

import json
import random

WORDS = [
    "Hello", "world", "weather in Paris?", " leading", "trailing ", "\n\nlines\n", "", "a\tb",
    "naïve café", "日本語のテキスト", "🙂🚀", "ǅ ß ŉ ΑΣ İ", "<|im_start|>system", "</think>",
    "<think>why\nnot</think>\n\nbecause", "{{ not jinja }}", "{% if %}", "'single' \"double\"",
    "back\\slash", "\u00a0nbsp\u2003", "\x0b\x0c\x1c", "1", "1.5", "0", "-3", "true", "null",
    "[TOOL_CALLS]", "a<b>&c", "line1\r\nline2\rline3", "\u2028sep", "e\u0301", "x" * 60,
    "[INST] hi [/INST]", "<tool_call>{}</tool_call>", "\ufeffbom", "\u0000nul", "/no_think",
    "/think",
]


def text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -1, 7, 2**31, -(2**63), 2**63 - 1, 2**64, 10**25])
    if kind == 2:
        return rng.choice([0.0, -0.0, 1.5, 1e16, 1e-5, 123456789.123, 1e22, 0.1, 1e300, 5e-324])
    if kind <= 5:
        return text(rng)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = ["a", "b", "city", "name", "type", "items", "é", "x y", "keys"]
    return {rng.choice(keys): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def content(rng, role):
    kind = rng.random()
    if kind < 0.75:
        return text(rng)
    if kind < 0.88:
        parts = []
        for _ in range(rng.randrange(0, 4)):
            part = rng.choice(
                [{"type": "text", "text": text(rng)}, {"type": "image"},
                 {"type": "image_url", "image_url": {"url": "u"}}, {"type": "audio"}]
            )
            parts.append(dict(part))
        return parts
    if kind < 0.97:
        return None if role in ("assistant", "tool") or kind > 0.95 else text(rng)
    return value(rng)


def schema(rng, depth=0):
    kinds = ["string", "integer", "number", "boolean", "array", "object"]
    kind = rng.choice(kinds if depth < 2 else kinds[:4])
    result = {"type": kind if rng.random() < 0.93 else [kind, "null"]}
    if rng.random() < 0.7:
        result["description"] = text(rng)
    if rng.random() < 0.2:
        result["enum"] = [text(rng) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.15:
        result["default"] = value(rng, 2)
    if rng.random() < 0.1:
        result["nullable"] = True
    if kind == "array" and rng.random() < 0.9:
        result["items"] = schema(rng, depth + 1)
    if kind == "object" and rng.random() < 0.9:
        names = rng.sample(["city", "unit", "days", "opts", "Zeta", "alpha"], rng.randrange(0, 4))
        result["properties"] = {name: schema(rng, depth + 1) for name in names}
        if rng.random() < 0.6:
            result["required"] = names[: rng.randrange(0, len(names) + 1)]
    return result


def tool(rng):
    function = {"name": rng.choice(["get_weather", "search", "calc"])}
    if rng.random() < 0.95:
        function["description"] = text(rng)
    if rng.random() < 0.95:
        parameters = schema(rng)
        parameters["type"] = "object"
        parameters.setdefault("properties", {"q": schema(rng, 1)})
        function["parameters"] = parameters
    if rng.random() < 0.1:
        function["return"] = {"type": "string", "description": "r"}
    if rng.random() < 0.05:
        return function
    return {"type": "function", "function": function}


def tool_call(rng):
    arguments = {"city": text(rng), "n": value(rng, 2)} if rng.random() < 0.8 else {}
    call = {
        "type": "function",
        "function": {
            "name": rng.choice(["get_weather", "search"]),
            "arguments": json.dumps(arguments) if rng.random() < 0.3 else arguments,
        },
    }
    if rng.random() < 0.8:
        call["id"] = rng.choice(["call_1", "abcdefghi", "123456789", "functions.search:0"])
    if rng.random() < 0.05:
        call = call["function"]
    return call


def message(rng, role):
    result = {"role": role}
    if rng.random() < 0.97:
        result["content"] = content(rng, role)
    if role == "assistant":
        if rng.random() < 0.35:
            result["tool_calls"] = [tool_call(rng) for _ in range(rng.choice([0, 1, 1, 2]))]
        if rng.random() < 0.2:
            result[rng.choice(["reasoning_content", "thinking", "reasoning"])] = text(rng)
        if rng.random() < 0.05:
            result["prefix"] = True
    if role == "tool":
        if rng.random() < 0.7:
            result["name"] = "get_weather"
        if rng.random() < 0.8:
            result["tool_call_id"] = rng.choice(["call_1", "abcdefghi", "123456789"])
    return result


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append(message(rng, rng.choice(["system", "system", "system", "developer"])))
    if rng.random() < 0.8:  # well-formed turns
        for _ in range(rng.randrange(1, 5)):
            messages.append(message(rng, "user"))
            if rng.random() < 0.8:
                messages.append(message(rng, "assistant"))
                while messages[-1].get("tool_calls") and rng.random() < 0.8:
                    for _ in messages[-1]["tool_calls"]:
                        messages.append(message(rng, "tool"))
                    messages.append(message(rng, "assistant"))
            if rng.random() < 0.05:
                break
    else:
        roles = ["user", "assistant", "system", "tool", "developer", "ipython", "odd"]
        messages += [message(rng, rng.choice(roles)) for _ in range(rng.randrange(0, 6))]
    context = {
        "messages": messages,
        "add_generation_prompt": rng.random() < 0.6,
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    if rng.random() < 0.5:
        context["tools"] = [tool(rng) for _ in range(rng.randrange(1, 4))]
    elif rng.random() < 0.5:
        context["tools"] = None
    flags = {
        "enable_thinking": [True, False], "thinking": [True, False], "documents": [None, []],
        "builtin_tools": [["wolfram_alpha", "brave_search"], ["code_interpreter"]],
        "date_string": ["26 Jul 2024"], "tools_in_user_message": [True, False],
        "reasoning_effort": ["low", "high"], "model_identity": ["You are a bot."],
        "custom_tools": [[]], "add_vision_id": [True], "preserve_thinking": [True, False],
        "unk_token": ["<unk>"], "pad_token": ["<pad>"],
    }
    for name, choices in flags.items():
        if rng.random() < 0.12:
            context[name] = rng.choice(choices)
    return context


# --- small programs: random expressions and statements over a fixed set of variables.

NAMES = ["a", "b", "l", "d", "n", "t", "f", "s", "m", "u", "q"]
FILTERS = [
    "trim", "upper", "lower", "title", "capitalize", "length", "list", "string", "first", "last",
    "int", "float", "abs", "round", "reverse", "sort", "join", "join(',')", "unique", "sum", "max",
    "min", "tojson", "tojson(indent=2)", "default('z')", "default('z', true)", "items", "dictsort",
    "replace('a', 'bb')", "indent", "indent(2, true)", "map('string')", "select", "reject",
    "map('upper')", "selectattr('role')", "map(attribute='role')", "map(attribute='n')", "safe",
    "groupby('n')", "batch(2)", "slice(2)", "e", "wordcount", "truncate(5)", "center(9)",
    "select('string')", "rejectattr('n', 'eq', 2)", "map('length')", "sort(attribute='n')",
    "round(1)", "d", "count", "format(1)", "trim('a')", "sort(reverse=true)", "map('first')",
    "attr('x')", "join(1)", "int(5)", "select('odd')", "tojson(ensure_ascii=true)", "striptags",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "odd",
    "even", "true", "false", "boolean", "integer", "float", "callable", "lower", "upper",
    "divisibleby 2", "eq 1", "in l", "sameas none", "ge 1", "in 'text'", "escaped", "filter",
]
METHODS = [
    "upper()", "strip()", "split()", "split(',')", "split('a', 1)", "items()", "keys()", "values()",
    "get('x')", "get(1, 'z')", "startswith('t')", "endswith('t')", "replace('t', 'T')", "title()",
    "join(l)", "join(['x', 'y'])", "find('e')", "count('t')", "lstrip()", "rstrip('t ')", "lower()",
    "append(1)", "index(1)", "splitlines()", "isdigit()", "format(1, x=2)", "role", "content", "x",
    "nope", "zfill(7)", "partition('e')", "capitalize()", "rsplit(none, 1)", "copy()", "pop()",
    "isalpha()", "removeprefix('te')", "rfind('t')", "swapcase()", "islower()", "center(8)",
]
LITERALS = [
    "1", "0", "-1", "2.5", "'x'", "''", "'a,b'", "none", "true", "false", "[]", "{}", "[1, 'a']",
    "(1, 2)", "{'x': 1}", "'%s'", "'%d-%s'", "'{}'", "1e20", "10", "'ß'", "range(3)", "[[1, 2]]",
]


def expression(rng, depth=0):
    kind = rng.randrange(18) if depth < 4 else rng.randrange(3)
    sub = lambda: expression(rng, depth + 1)  # noqa: E731
    if kind <= 1:
        return rng.choice(NAMES)
    if kind == 2:
        return rng.choice(LITERALS)
    if kind <= 6:
        return f"{operand(rng, depth)}|{rng.choice(FILTERS)}"
    if kind <= 8:
        return f"{operand(rng, depth)}.{rng.choice(METHODS)}"
    if kind == 9:
        return f"{operand(rng, depth)} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind <= 11:
        op = rng.choice(["+", "-", "*", "/", "//", "%", "~", "~", "+", "**"])
        if op == "**":  # big powers only differ in what overflows
            return f"({sub()} ** {rng.choice(['2', '0', '-1', '0.5'])})"
        return f"({sub()} {op} {sub()})"
    if kind == 12:
        op = rng.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "==", "in"])
        return f"({sub()} {op} {sub()})"
    if kind == 13:
        return f"({sub()} {rng.choice(['and', 'or'])} {sub()})"
    if kind == 14:
        tail = f" else {sub()}" if rng.random() < 0.8 else ""
        return f"({sub()} if {sub()}{tail})"
    if kind == 15:
        fixed = ["0", "-1", "1:", ":2", "::-1", "'x'", "'role'", "5", "::2", "-2:"]
        index = rng.choice([*fixed, sub()])
        return f"{operand(rng, depth)}[{index}]"
    if kind == 16:
        return rng.choice([f"[{sub()}, {sub()}]", f"({sub()}, {sub()})", f"{{'k': {sub()}}}"])
    return rng.choice([f"(not {sub()})", f"(-{sub()})", f"dict(a={sub()})"])


def operand(rng, depth):
    return rng.choice(NAMES) if rng.random() < 0.5 else f"({expression(rng, depth + 1)})"


def statements(rng, depth=0):
    out = ""
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(11) if depth < 3 else rng.randrange(4)
        left = rng.choice(["{%", "{%-", "  {%", "\n  {%", "{%+"])
        right = rng.choice(["%}", "-%}", "%}\n", "%}\n\n", "+%}"])
        body = (lambda: statements(rng, depth + 1))
        e = (lambda: expression(rng, 2))
        name = rng.choice(["x", "y", "a", "l"])
        if kind == 0:
            out += rng.choice(["text", " \n ", "line\n", "  ", "{# c #}", "{#- c -#}\n", "\n"])
        elif kind <= 2:
            out += rng.choice(["{{ ", "{{- "]) + e() + rng.choice([" }}", " -}}", " }}\n"])
        elif kind == 3:
            out += f"{left} set {name} = {e()} {right}"
        elif kind == 4:
            out += f"{left} if {e()} {right}{body()}{left} else {right}{body()}{left} endif {right}"
        elif kind == 5:
            test = f" if {e()}" if rng.random() < 0.3 else ""
            extra = rng.choice(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}"])
            tail = f"{left} else {right}{body()}" if rng.random() < 0.3 else ""
            skip = "{% if loop.first %}{% continue %}{% endif %}"
            stop = rng.choice(["", "", "{% break %}", skip])
            out += f"{left} for {name} in {e()}{test} {right}{extra}{stop}{body()}{tail}"
            out += f"{left} endfor {right}"
        elif kind == 6:
            out += f"{left} set {name} {right}{body()}{left} endset {right}"
        elif kind == 7:
            out += f"{left} macro x(y, z={e()}) {right}{{{{ y }}}}{body()}{left} endmacro {right}"
            out += f"{{{{ x({e()}) }}}}"
        elif kind == 8:
            out += "{% set ns = namespace(v=" + e() + ") %}{% for i in l %}{% set ns.v = " + e()
            out += " %}{{ ns.v }}{% endfor %}"
        elif kind == 9:
            out += f"{left} with {name} = {e()} {right}{body()}{left} endwith {right}"
        else:
            out += f"{left} filter {rng.choice(['upper', 'trim', 'indent'])} {right}{body()}"
            out += f"{left} endfilter {right}"
    return out


def program(rng):
    context = {
        "a": rng.choice([1, 2, -7]), "b": "text", "l": [3, 1, 2], "n": None, "t": True, "f": 1.5,
        "d": {"x": 1, "y": "two", "items": [9]}, "s": "  pad\ted \n", "u": "Ünï ß 日本 🙂",
        "m": [{"role": "user", "n": 2}, {"role": "bot", "n": 1}, {"role": "User", "n": 2}],
    }
    if rng.random() < 0.2:
        context[rng.choice(["b", "l", "d", "s"])] = value(rng)
    if rng.random() < 0.6:
        return "{{ " + expression(rng) + " }}", context
    return statements(rng), context
