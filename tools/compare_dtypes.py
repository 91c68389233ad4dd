#!/usr/bin/env python3
"""Measures how much weights of another dtype change a model: log-probabilities and best tokens at
each position of given texts, and how long greedy continuations stay equal.

    python3 tools/compare_dtypes.py models/demo [--dtypes bf16 fp8] [--sluice build/sluice]
        [--texts tests/golden/demo] [--every 1] [-- --device cuda:0 ...]

Texts are JSON files with `prompt_ids` and `output_ids`. At each position of the output, the model
sees all tokens before it and reports its 20 most likely tokens. Options after `--` go to every
model.
"""

import argparse
import glob
import json
import os
import subprocess
import sys

TOP = 20


class Model:
    def __init__(self, sluice, directory, dtype, options):
        self.command = [sluice, "generate", directory, "--dtype", dtype, "--temperature", "0",
                        "--ignore-eos", "--json", *options]

    def ask(self, ids, tokens, *options):
        command = [*self.command, "--prompt-ids", ",".join(map(str, ids)), "--max-tokens",
                   str(tokens), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def next_tokens(self, ids):
        """token -> log-probability of the most likely ones, the best first."""
        listed = self.ask(ids, 1, "--logprobs", str(TOP))["logprobs"][0][1:]
        return {entry["token"]: entry["logprob"] for entry in listed}


def compare_position(reference, other, sums):
    best = next(iter(reference))
    sums["positions"] += 1
    sums["same"] += best == next(iter(other))
    if best in other:
        sums["best"].append(abs(other[best] - reference[best]))


def compare(models, texts, every):
    """Prints how much the second of two models differs from the first."""
    sums = {"positions": 0, "same": 0, "best": []}
    equal, total = 0, 0
    for path in sorted(glob.glob(os.path.join(texts, "*.json"))):
        with open(path, encoding="utf-8") as stream:
            text = json.load(stream)
        prompt, output = text["prompt_ids"], text["output_ids"]
        for i in range(0, len(output), every):
            ids = prompt + output[:i]
            compare_position(*(model.next_tokens(ids) for model in models), sums)
        first, second = (model.ask(prompt, len(output))["output_tokens"] for model in models)
        same = next((i for i, (a, b) in enumerate(zip(first, second)) if a != b), len(first))
        equal += same
        total += len(first)
        print(f"{os.path.basename(path)}: {same} of {len(first)} greedy tokens before they part",
              flush=True)
    best = sorted(sums["best"])
    n = sums["positions"]
    print(f"{n} positions: the best token is the same at {sums['same']} "
          f"({100 * sums['same'] / n:.1f} %); its log-probability differs by "
          f"{sum(best) / len(best):.4f} on average, {best[len(best) // 2]:.4f} in the middle, "
          f"{best[-1]:.3f} at most. Greedy continuations: "
          f"{equal} of {total} tokens before they part")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--dtypes", nargs=2, default=["bf16", "fp8"])
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--texts", default="tests/golden/demo")
    parser.add_argument("--every", type=int, default=1, help="look at every Nth position")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    compare([Model(arguments.sluice, arguments.model, dtype, words[end + 1:])
             for dtype in arguments.dtypes], arguments.texts, arguments.every)


if __name__ == "__main__":
    main()
