#!/usr/bin/env python3
"""Checks texts that Sluice makes for random JSON schemas with the jsonschema package.

    tests/oracle/schema_oracle.py --probe build/release/tests/oracle/grammar_probe [--schemas N]

grammar_probe walks at random over the token masks of each schema. Every whole text must parse and
be valid. Exits 1 with the schema and the text of the first that is not, and 77 if jsonschema is
missing.
"""

import argparse
import json
import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, "build", "venv", "bin", "python")
SKIPPED = 77
NAMES = ["a", "b", "name", "na", "x y", "q\"t", "ä", ""]


def constant(rng, depth=2):
    kinds = [None, True, False, 0, -7, 12, 1.5, "a", "q\"\\t\n", "ä", ""]
    if depth and rng.random() < 0.2:
        return rng.choice([[constant(rng, depth - 1)], {"k": constant(rng, depth - 1)}])
    return rng.choice(kinds)


def number(rng, kind):
    schema = {"type": kind}
    low, high = sorted(rng.choice([rng.randint(-12, 12), rng.randint(-2000, 2000)])
                       for _ in range(2))
    if rng.random() < 0.6:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low - 1
    if rng.random() < 0.6:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = high + 1
    return schema


def string(rng):
    schema = {"type": "string"}
    roll = rng.random()
    if roll < 0.3:
        low = rng.randint(0, 4)
        schema["minLength"] = low
        if rng.random() < 0.7:
            schema["maxLength"] = low + rng.randint(0, 5)
    elif roll < 0.5:
        schema["pattern"] = rng.choice(
            [r"^[a-z]{2,4}$", r"\d", r"^(x|yz)+$", r"^a|b$", r"^[^\"]*$", r"\"", r"^\w+-\d{1,3}$"])
    elif roll < 0.6:
        schema["format"] = rng.choice(["date", "date-time", "time", "uuid", "email", "ipv4"])
    return schema


def array(rng, depth):
    schema = {"type": "array"}
    if rng.random() < 0.2:
        schema["prefixItems"] = [any_schema(rng, depth) for _ in range(rng.randint(1, 3))]
        return schema
    if rng.random() < 0.9:
        schema["items"] = any_schema(rng, depth)
    low = rng.randint(0, 2)
    if rng.random() < 0.4:
        schema["minItems"] = low
    if rng.random() < 0.5:
        schema["maxItems"] = low + rng.randint(0, 3)
    return schema


def closed_object(rng, depth):
    names = rng.sample(NAMES, rng.randint(0, 4))
    schema = {"type": "object", "properties": {n: any_schema(rng, depth) for n in names},
              "required": [n for n in names if rng.random() < 0.5]}
    roll = rng.random()
    if roll < 0.5:
        schema["additionalProperties"] = False
    elif roll < 0.8:
        schema["additionalProperties"] = rng.choice([True, any_schema(rng, 0)])
    return schema


def any_schema(rng, depth):
    roll = rng.random()
    if depth > 0 and roll < 0.35:
        return closed_object(rng, depth - 1)
    if depth > 0 and roll < 0.5:
        return array(rng, depth - 1)
    if depth > 0 and roll < 0.6:
        return {"anyOf": [any_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if depth > 0 and roll < 0.65:
        return {"oneOf": [{"type": "object", "properties": {"t": {"const": tag}, "v": value},
                           "required": ["t"]}
                          for tag, value in (("x", any_schema(rng, 0)), ("y", any_schema(rng, 0)))]}
    return rng.choice([
        lambda: {"type": "null"}, lambda: {"type": "boolean"}, lambda: number(rng, "integer"),
        lambda: number(rng, "number"), lambda: string(rng), lambda: string(rng),
        lambda: {"const": constant(rng)},
        lambda: {"enum": [constant(rng) for _ in range(rng.randint(1, 4))]},
        lambda: {"type": ["string", "null"]},
        lambda: {"type": ["integer", "boolean"], "minimum": 3},
        lambda: {"$ref": "#/$defs/tree"}, lambda: {}])()


def root_schema(rng):
    schema = any_schema(rng, rng.randint(0, 3))
    if "$ref" in schema:
        schema = {"anyOf": [schema]}
    schema["$defs"] = {"tree": {"type": "object", "properties": {
        "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
        "value": any_schema(rng, 0) if rng.random() < 0.8 else {"type": "integer"}},
        "required": ["left"], "additionalProperties": False}}
    return schema


def check(schema, answer, validator_class):
    """The number of texts that were checked, or an explanation of what is wrong."""
    for text in answer["texts"]:
        try:
            value = json.loads(text)
        except ValueError as error:
            return f"{text!r} is not JSON: {error}"
        problem = next(validator_class(schema).iter_errors(value), None)
        if problem is not None:
            return f"{text!r} is not valid: {problem.message}"
    return len(answer["texts"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--walks", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        import jsonschema
    except ImportError:
        if os.access(PYTHON, os.X_OK) and os.path.realpath(sys.prefix) != os.path.realpath(
                os.path.dirname(os.path.dirname(PYTHON))):
            sys.exit(subprocess.run([PYTHON, *sys.argv], check=False).returncode)
        print("SKIPPED: no jsonschema in build/venv; run: make build/venv/client.stamp")
        sys.exit(SKIPPED)

    probe = subprocess.Popen([options.probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, encoding="utf-8")
    texts = refused = without = 0
    for index in range(options.schemas):
        rng = random.Random(options.seed * 1_000_003 + index)
        schema = root_schema(rng)
        probe.stdin.write(json.dumps({"schema": schema, "walks": options.walks, "seed": index}))
        probe.stdin.write("\n")
        probe.stdin.flush()
        line = probe.stdout.readline()
        if not line:
            sys.exit(f"grammar_probe ended at schema {index}: {json.dumps(schema)}")
        answer = json.loads(line)
        if "error" in answer:
            refused += 1
            continue
        result = check(schema, answer, jsonschema.Draft202012Validator)
        if isinstance(result, str):
            sys.exit(f"schema {index}: {json.dumps(schema)}\n{result}")
        texts += result
        without += result == 0
    print(f"{options.schemas} schemas: {texts} texts valid, {refused} schemas refused, "
          f"{without} without a whole text")
    if refused > options.schemas // 5 or without > options.schemas // 5 or texts == 0:
        sys.exit("too many schemas were refused or gave no text: the check means little")


if __name__ == "__main__":
    main()
