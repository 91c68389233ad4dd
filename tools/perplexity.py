#!/usr/bin/env python3
"""Perplexity of models on held text, beside each other: how much quantized weights lose.

    python3 tools/perplexity.py models/demo              # BF16 and every --dtype that quantizes
    python3 tools/perplexity.py DIR DIR@int8 model-q4_0.gguf [--texts FILE...] [--sluice PATH]

Each model is a directory or a GGUF file; @TYPE after it is its --dtype. The first is the one that
others are compared with, token by token. The text is that of plain stories which the demo model's
training never saw (tools/demo_model), or files given by --texts, cut into pieces at ends of lines.
"""

import argparse
import json
import math
import os
import statistics
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from ready_server import ReadyServer  # noqa: E402

FORMS = ("bf16", "fp8", "int8", "int4")
PIECE_CHARACTERS = 2000  # of files: long enough that most tokens have a context


def held_stories(count):
    """The plain stories among the first documents of the held-out split."""
    sys.path.insert(0, os.path.join(HERE, "demo_model"))
    import corpus  # pylint: disable=import-outside-toplevel
    documents = (corpus.document("heldout", index) for index in range(1 << 20))
    stories = (text for ((role, text), *_) in documents if role is None)
    return [next(stories) for _ in range(count)]


def pieces_of(text):
    """Pieces of whole lines, each of about PIECE_CHARACTERS."""
    pieces, piece = [], ""
    for line in text.splitlines(keepends=True):
        if piece and len(piece) + len(line) > PIECE_CHARACTERS:
            pieces.append(piece)
            piece = ""
        piece += line
    return pieces + [piece] if piece.strip() else pieces


def read_texts(paths, limit):
    pieces = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            pieces += pieces_of(file.read())
    return pieces[:limit]


def losses_in(answer):
    """The negative log-probability of each token of the prompt but the first."""
    positions = answer["choices"][0]["prompt_logprobs"][1:]
    return [-next(iter(position.values()))["logprob"] for position in positions]


def ask(port, text):
    body = {"model": "held-text", "prompt": text, "max_tokens": 0, "prompt_logprobs": 0}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def measure(sluice, model, texts, options):
    """The losses of all tokens of the texts, in order."""
    path, _, dtype = model.partition("@")
    command = [sluice, "serve", path, "--served-model-name", "held-text", *options]
    if dtype:
        command += ["--dtype", dtype]
    with ReadyServer(command) as server:
        return [loss for text in texts for loss in losses_in(ask(server.port, text))]


def summary(losses, reference):
    """Perplexity, its ratio to the reference's, and the standard error of that ratio's logarithm:
    tokens are compared one by one, so most of the text's own scatter cancels out."""
    if len(losses) != len(reference):
        raise SystemExit("the models have different tokenizers: their perplexities do not compare")
    differences = [a - b for a, b in zip(losses, reference)]
    mean = statistics.fmean(differences)
    error = statistics.pstdev(differences) / math.sqrt(len(differences))
    return math.exp(statistics.fmean(losses)), math.exp(mean), error


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[@TYPE]")
    parser.add_argument("--texts", nargs="+", metavar="FILE", default=[])
    parser.add_argument("--pieces", type=int, default=100, help="of text, at most (default 100)")
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--options", default="", help="more options of sluice serve, in one word")
    a = parser.parse_args(argv)
    models = a.models
    if len(models) == 1 and "@" not in models[0]:
        models = [f"{models[0]}@{form}" for form in FORMS]
    texts = read_texts(a.texts, a.pieces) if a.texts else held_stories(a.pieces)
    print("| model | perplexity | to the first | tokens |\n|---|---|---|---|")
    reference = None
    for model in models:
        losses = measure(a.sluice, model, texts, a.options.split())
        reference = reference or losses
        perplexity, ratio, error = summary(losses, reference)
        print(f"| {model} | {perplexity:.4f} | {ratio:.4f} (± {error:.4f}) | {len(losses)} |",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
