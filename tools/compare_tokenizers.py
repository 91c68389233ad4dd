#!/usr/bin/env python3
"""Compares Sluice's tokenizer with the `tokenizers` package on random, unfriendly Unicode text.

    python tools/compare_tokenizers.py TOKENIZER... [--count 100000] [--seed 1]
        [--command "build/sluice tokenize {} --jsonl"]

TOKENIZER is a tokenizer.json or a directory with one. Each text is encoded by both, with and
without special tokens; the ids must be equal. With --decode-command, for example
"build/bench/tokenizer_bench {} decode-lines", the ids are decoded by both as well, and the texts
must be equal. Prints each difference and exits 1 when there is any.
"""

import argparse
import itertools
import json
import os
import random
import shlex
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

SPACES = " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f" \
         "\u205f\u2060\u3000\ufeff\u2581"
SCRIPTS = [(0x20, 0x7F), (0xA0, 0x180), (0x250, 0x370), (0x370, 0x400), (0x400, 0x530),
           (0x590, 0x600), (0x600, 0x700), (0x900, 0x980), (0xE00, 0xE80), (0xF00, 0x1000),
           (0x1100, 0x1200), (0x1780, 0x1800), (0x1E00, 0x2000), (0x2000, 0x2070),
           (0x2070, 0x20D0), (0x2100, 0x2200), (0x2460, 0x2500), (0x3000, 0x3100),
           (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xF900, 0xFB00), (0xFB00, 0xFB50),
           (0xFE00, 0xFE30), (0xFF00, 0xFFF0), (0x10000, 0x11000), (0x11900, 0x11A00),
           (0x1D400, 0x1D800), (0x1F300, 0x1FB00), (0x20000, 0x20100), (0xE0000, 0xE0200)]
WORDS = ["the", "Hello", " world", "don't", "WE'LL", "it's", "I'd", "you've", "'S", "'\u017f",
         "'re", "' s", "''", "naïve", "e\u0301", "A\u030a\u0327", "\u1100\u1161\u11a8", "ﬁ",
         "İstanbul", "straße", "ΑΣ", "3.14", "1234567", "12,345", "٣٤٥", "Ⅷ", "½", "<0x41>",
         "<0xE2>", "foo_bar", "a.b.c", "C++", "x = y;", "http://a.b/c?d=e&f", "#include", "...",
         "——", "\u00ad", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "日本語", "한국어", "ไทย", "हिन्दी", "עברית",
         "العربية", "မြန်မာ", "፩", "\u0f0b"]


def any_code_point(rng):
    while True:
        code = rng.randrange(0x110000)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def pieces(rng, specials, marks):
    """One stretch of text of a random kind."""
    kind = rng.randrange(16)
    few = rng.choice((1, 1, 2, 3, 5, 8))
    if kind == 0:
        return "".join(any_code_point(rng) for _ in range(few))
    if kind <= 3:
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(rng.randrange(low, high)) for _ in range(few))
    if kind <= 6:
        return rng.choice(WORDS)
    if kind == 7:
        return "".join(rng.choice(SPACES) for _ in range(few))
    if kind == 8:
        return rng.choice(SPACES) * rng.choice((1, 2, 3, 4, 7, 16, 40))
    if kind == 9:
        return "".join(rng.choice("0123456789") for _ in range(few))
    if kind == 10:
        return "".join(chr(rng.randrange(32)) for _ in range(few))
    if kind == 11 and specials:
        text = rng.choice(specials)
        return text if rng.random() < 0.8 else text[:rng.randrange(len(text)) + 1]
    if kind == 12:
        return rng.choice("aAzé中ǅ.!-'\"0 ") * rng.choice((2, 3, 17, 64, 200))
    if kind == 13:
        base = rng.choice("aeouAEO가\u1100κ")
        return base + "".join(rng.choice(marks) for _ in range(few))
    if kind == 14:
        return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(few))
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCXYZ") for _ in range(few))


def texts(seed, count, specials):
    rng = random.Random(seed)
    marks = [chr(c) for c in range(0x110000) if unicodedata.combining(chr(c))]
    for _ in range(count):
        parts = []
        for _ in range(rng.choice((1, 1, 2, 3, 5, 9, 14))):
            parts.append(pieces(rng, specials, marks))
            if rng.random() < 0.4:
                parts.append(" ")
        yield "".join(parts)


def ask(command, path, values, *options):
    """Gives the command one value a line and returns its answers, a line each."""
    lines = "".join(json.dumps(value) + "\n" for value in values)
    result = subprocess.run(shlex.split(command.format(path)) + list(options),
                            input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    if len(answers) != len(values):
        sys.exit(f"{len(answers)} answers to {len(values)} lines")
    return answers


def chunks(iterable, size):
    iterator = iter(iterable)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def report(what, text, wanted, got):
    codes = " ".join(f"U+{ord(c):04X}" for c in text[:40])
    print(f"DIFFERENT {what}: {text[:80]!r}\n  {codes}\n  reference {wanted}\n  sluice    {got}")


def compare(path, args):
    file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
    reference = Tokenizer.from_file(file)
    reference.no_truncation()
    reference.no_padding()
    specials = [t.content for t in reference.get_added_tokens_decoder().values()]
    differences = 0
    for chunk in chunks(texts(args.seed, args.count, specials), 10000):
        for options, add in ((["--no-special"], False), ([], True)):
            wanted = [reference.encode(text, add_special_tokens=add).ids for text in chunk]
            for text, ids, got in zip(chunk, wanted, ask(args.command, file, chunk, *options)):
                if ids != got:
                    differences += 1
                    report("ids" if add else "ids without specials", text, ids, got)
        if args.decode_command:
            # Special tokens are decoded too: of those that its normalizer changes, the reference
            # no longer knows that they are special.
            got_texts = ask(args.decode_command, file, wanted)
            for text, ids, got in zip(chunk, wanted, got_texts):
                decoded = reference.decode(ids, skip_special_tokens=False)
                if decoded != got:
                    differences += 1
                    report("text", text, repr(decoded), repr(got))
        if differences >= args.stop_after:
            break
    print(f"{path}: {differences} differences in {args.count} texts (seed {args.seed})",
          flush=True)
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stop-after", type=int, default=20)
    parser.add_argument("--command", default="build/sluice tokenize {} --jsonl")
    parser.add_argument("--decode-command", default="")
    args = parser.parse_args()
    return 1 if sum(compare(path, args) for path in args.tokenizers) else 0


if __name__ == "__main__":
    sys.exit(main())
