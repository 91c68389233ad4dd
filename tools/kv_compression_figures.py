#!/usr/bin/env python3
"""Measures how small KV blocks become without loss (docs/kv-tiers.md).

    tools/kv_compression_figures.py build/release/apps/sluice MODEL [--dtype f32] [--shape 1b] \
        [--text FILE] [--pack build/release/bench/kv_pack_bench]

Runs the model once on the text, with a KV folder, and reads the blocks from the folder. Then it
compresses each block on its own: as it is, and with the bytes of the exponents apart. It prints
original bytes / compressed bytes, and bytes of KV per second of one core. `zstd` and `lz4` measure
themselves (their option -b); what is not installed is left out. "bound" is the entropy of the
exponents, with all other bits as they are: no code for single exponents is smaller.
"""

import argparse
import collections
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALIGNMENT = 4096
RECORD_BYTES = 128
# Random weights: the attention of a 1B model, and matrices small enough to run quickly.
SHAPES = {"1b": {"num_hidden_layers": 16, "num_key_value_heads": 8, "num_attention_heads": 32,
                 "head_dim": 64, "hidden_size": 2048, "intermediate_size": 2048}}


def align(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def blocks_of(folder):
    """All blocks of a folder of one model that is not encrypted."""
    found = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as stream:
            header = stream.read(ALIGNMENT)
            if not header.startswith(b"sluice-kv\0segment"):
                continue
            pages, = struct.unpack_from("<I", header, 28)
            block_bytes, = struct.unpack_from("<Q", header, 32)
            records = stream.read(pages * RECORD_BYTES)
            first = ALIGNMENT + align(pages * RECORD_BYTES)
            for page in range(pages):
                record = records[page * RECORD_BYTES:(page + 1) * RECORD_BYTES]
                if any(record):
                    stream.seek(first + page * align(block_bytes))
                    found.append(stream.read(block_bytes))
    return found


def split(block, element):
    """(exponents, the other bytes) of little-endian BF16 or F32."""
    high = block[element - 1::element]
    low = block[element - 2::element]
    exponents = bytes((h << 1 & 255) | l >> 7 for h, l in zip(high, low))
    rest = [bytes((h & 128) | (l & 127) for h, l in zip(high, low))]
    rest += [block[i::element] for i in range(element - 2)]
    return exponents, b"".join(rest)


def entropy_bits(data):
    counts = collections.Counter(data)
    return -sum(n / len(data) * math.log2(n / len(data)) for n in counts.values())


def benchmark(tool, level, path, piece):
    """(ratio, bytes/s compressed, bytes/s decompressed) of pieces of a file; None: not there."""
    if shutil.which(tool) is None:
        return None
    run = subprocess.run([tool, f"-b{level}", "-i2", f"-B{piece}", path], capture_output=True,
                         text=True, check=False)
    lines = re.split(r"[\r\n]+", run.stdout + run.stderr)
    for line in reversed(lines):
        found = re.search(
            r"(\d+) -> *(\d+) \( *x?([\d.]+)\), *([\d.]+) MB/s *, *([\d.]+) MB/s", line)
        if found:
            return (int(found[1]) / int(found[2]), float(found[4]) * 1e6, float(found[5]) * 1e6)
    sys.exit(f"{tool} printed no figures:\n" + "\n".join(lines))


def make_model(model, shape, folder):
    for name in os.listdir(model):
        if name.endswith((".json", ".jinja")):
            shutil.copy(os.path.join(model, name), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as stream:
        config = json.load(stream)
    config.update(SHAPES[shape])
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(config, stream)


def run_model(arguments, folder):
    model, more = arguments.model, []
    if arguments.shape:
        model = os.path.join(folder, "model")
        os.mkdir(model)
        make_model(arguments.model, arguments.shape, model)
        more = ["--load-format", "dummy"]
    if arguments.dtype:
        more += ["--dtype", arguments.dtype]
    with open(arguments.text, encoding="utf-8") as stream:
        text = stream.read()[:arguments.characters]
    kv = os.path.join(folder, "kv")
    run = subprocess.run([arguments.sluice, "generate", model, "--kv-disk", f"{kv}:1GiB",
                          "--snapshot", "off", "--max-tokens", "64", "--prompt", text, *more],
                         capture_output=True, text=True, check=False,
                         env={**os.environ, "XDG_STATE_HOME": folder})
    if run.returncode != 0:
        sys.exit(run.stderr)
    return blocks_of(kv)


def show(name, ratio, packing=0.0, unpacking=0.0):
    speeds = [f"{speed / 1e6:8.0f} MB/s" if speed else "-".rjust(13)
              for speed in (packing, unpacking)]
    print(f"{name:34} {ratio:6.3f}  {speeds[0]}  {speeds[1]}")


def measure(blocks, element, folder, pack):
    block_bytes = len(blocks[0])
    halves = [split(block, element) for block in blocks]
    exponents = [half[0] for half in halves]
    paths = {name: os.path.join(folder, name) for name in ("block", "exponents")}
    for name, pieces in (("block", blocks), ("exponents", exponents)):
        with open(paths[name], "wb") as stream:
            stream.write(b"".join(pieces))
    bits = sum(entropy_bits(piece) for piece in exponents) / len(exponents)
    print(f"{len(blocks)} blocks of {block_bytes} bytes; {bits:.2f} bits of an exponent's 8")
    print(f"{'':34} {'ratio':>6}  {'pack':>13}  {'unpack':>13}")
    show("bound", 8 * element / (8 * element - 8 + bits))
    for tool, level in (("lz4", 1), ("zstd", 1), ("zstd", 3)):
        if figures := benchmark(tool, level, paths["block"], block_bytes):
            show(f"{tool} -{level}, the block as it is", *figures)
        if figures := benchmark(tool, level, paths["exponents"], len(exponents[0])):
            left = element - 1 + 1 / figures[0]
            show(f"{tool} -{level}, exponents apart", element / left, figures[1] * element,
                 figures[2] * element)
    if pack and element == 2:
        subprocess.run([pack, paths["block"], str(block_bytes)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("--dtype", default="", help="as sluice's; default: as stored")
    parser.add_argument("--element", type=int, default=2, help="bytes of an element of the KV")
    parser.add_argument("--shape", choices=sorted(SHAPES), help="random weights of this shape")
    parser.add_argument("--text", default=os.path.join(ROOT, "docs", "sarathi.md"))
    parser.add_argument("--characters", type=int, default=3000, help="of the text")
    parser.add_argument("--pack", default="", help="path of kv_pack_bench: the code of --kv-ram")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        blocks = run_model(arguments, folder)
        if not blocks:
            sys.exit("no block was saved: is the text longer than a block?")
        measure(blocks, arguments.element, folder, arguments.pack)


if __name__ == "__main__":
    main()
