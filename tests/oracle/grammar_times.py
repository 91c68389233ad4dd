#!/usr/bin/env python3
"""Times of token masks beside XGrammar, on the same schemas, texts and vocabulary, in one run.

    python3 -m venv /tmp/x && /tmp/x/bin/pip install xgrammar
    /tmp/x/bin/python tests/oracle/grammar_times.py --tokenizer FOLDER_OR_TOKENIZER_JSON \\
        --probe build/release/tests/oracle/grammar_probe

Prints the first use of each schema in milliseconds, and the time for the mask of a token and for
reading it in microseconds. XGrammar is called from Python, which adds about a microsecond a call.
"""

import argparse
import json
import subprocess
import time

import numpy as np
import xgrammar

PERSON = {"type": "object", "additionalProperties": False,
          "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                         "email": {"type": "string"}, "tags": {"type": "array",
                                                               "items": {"type": "string"}},
                         "address": {"type": "object", "additionalProperties": False,
                                     "properties": {"street": {"type": "string"},
                                                    "city": {"type": "string"},
                                                    "zip": {"type": "string",
                                                            "pattern": "^[0-9]{5}$"}},
                                     "required": ["street", "city", "zip"]}},
          "required": ["name", "age", "email", "tags", "address"]}
PERSON_TEXT = {"name": "Ada Lovelace, countess", "age": 36, "email": "ada@example.org",
               "tags": ["mathematics", "poetical science", "Größe"],
               "address": {"street": "12 St James's Square", "city": "London", "zip": "12345"}}
TREE = {"$defs": {"node": {"type": "object", "additionalProperties": False,
                           "properties": {"label": {"type": "string"},
                                          "children": {"type": "array",
                                                       "items": {"$ref": "#/$defs/node"}}},
                           "required": ["label", "children"]}},
        "$ref": "#/$defs/node"}
TREE_TEXT = {"label": "root of all", "children": [
    {"label": "left", "children": [{"label": "a leaf", "children": []}]},
    {"label": "right", "children": []}]}
EVENT = {"type": "object", "additionalProperties": False,
         "properties": {"kind": {"enum": ["created", "updated", "deleted", "moved"]},
                        "score": {"type": "number"}, "ok": {"type": "boolean"},
                        "source": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
         "required": ["kind", "score", "ok", "source"]}
EVENT_TEXT = {"kind": "updated", "score": 17.25, "ok": True, "source": "sensor 12, hall B"}
LIMITED = {"type": "object", "additionalProperties": False,
           "properties": {"title": {"type": "string", "maxLength": 60},
                          "rating": {"type": "integer", "minimum": 1, "maximum": 10}},
           "required": ["title", "rating"]}
LIMITED_TEXT = {"title": "An account of the engine", "rating": 7}
CASES = [("person", PERSON, PERSON_TEXT), ("tree", TREE, TREE_TEXT), ("event", EVENT, EVENT_TEXT),
         ("limited", LIMITED, LIMITED_TEXT)]


class Probe:
    def __init__(self, program, tokenizer):
        self.process = subprocess.Popen([program, "--tokenizer", tokenizer], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8")

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def tokens_of(text, vocabulary):
    """The longest token first: any split serves, as long as both sides get the same one."""
    data, ids = text.encode(), []
    longest = max(map(len, vocabulary))
    while data:
        size = next(n for n in range(min(longest, len(data)), 0, -1) if data[:n] in vocabulary)
        ids.append(vocabulary[data[:size]])
        data = data[size:]
    return ids


def xgrammar_times(compiler, schema, ids, vocab_size):
    start = time.perf_counter()
    compiled = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
    compile_ms = (time.perf_counter() - start) * 1e3
    matcher = xgrammar.GrammarMatcher(compiled)
    mask = np.full((1, (vocab_size + 31) // 32), -1, dtype=np.int32)
    times = []
    for token in ids:
        start = time.perf_counter()
        matcher.fill_next_token_bitmask(mask)
        accepted = matcher.accept_token(token)
        times.append((time.perf_counter() - start) * 1e6)
        assert accepted, token
    return compile_ms, times


def shown(times):
    return f"{np.percentile(times, 50):8.1f} {np.percentile(times, 99):8.1f} {max(times):8.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    probe = Probe(options.probe, options.tokenizer)
    tokens = [bytes.fromhex(t) for t in probe.ask({"vocabulary": True})["vocabulary"]]
    info = xgrammar.TokenizerInfo(tokens, vocab_type=xgrammar.VocabType.RAW,
                                  vocab_size=len(tokens), stop_token_ids=[len(tokens) - 1])
    compiler = xgrammar.GrammarCompiler(info, max_threads=2, cache_enabled=False)
    vocabulary = {}
    for token, data in enumerate(tokens):
        if data:
            vocabulary.setdefault(data, token)
    print(f"{len(tokens)} tokens            first use ms     50 %     99 %      max us per token")
    ours, theirs = [], []
    for name, schema, value in CASES:
        text = json.dumps(value, ensure_ascii=False)
        # Interleaved: a round of one, then of the other.
        mine, other = [], []
        for _ in range(options.rounds):
            answer = probe.ask({"schema": schema, "texts": [text]})
            mine.append((answer["compile_us"] / 1e3, answer["times_us"][0]))
            other.append(xgrammar_times(compiler, schema, tokens_of(text, vocabulary),
                                        len(tokens)))
        for label, results in (("sluice", mine), ("xgrammar", other)):
            times = [t for _, ts in results for t in ts]
            (ours if label == "sluice" else theirs).extend(times)
            print(f"{name:10} {label:10} {results[0][0]:12.2f} {shown(times)}")
    print(f"{'all':10} {'sluice':10} {'':12} {shown(ours)}")
    print(f"{'all':10} {'xgrammar':10} {'':12} {shown(theirs)}")


if __name__ == "__main__":
    main()
