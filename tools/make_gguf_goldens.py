#!/usr/bin/env python3
"""Writes tests/golden/gguf/blocks.gguf: tensors of random bytes in the types of GGUF that are
read, and beside each one NAME.expected, its values in F32 as the package gguf computes them.

    python3 tools/make_gguf_goldens.py

Needs tools/requirements-gguf.txt. Scales are finite halves of every magnitude, both signs, zero and
subnormal ones included; all other bytes are random, so every code occurs.
"""

import os
import random
import struct

import gguf
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUTPUT = os.path.join(ROOT, "tests", "golden", "gguf", "blocks.gguf")
ROWS = 3
COLUMNS = 512

# For each type: the places of the halves in a block.
HALVES = {"F16": [0], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_NL": [0], "IQ4_XS": [0]}


def half(rng):
    """The bytes of a finite half."""
    exponent = rng.choice([0, 0, 1, 5, 10, 14, 15, 16, 20])
    return struct.pack("<H", rng.getrandbits(1) << 15 | exponent << 10 | rng.getrandbits(10))


def block(rng, name, size):
    data = bytearray(rng.randbytes(size))
    for place in HALVES.get(name, []):
        data[place:place + 2] = half(rng) if rng.random() < 0.9 else b"\0\0"
    if name == "BF16":
        data[1] &= 0xBF  # below the exponent of infinity
    return bytes(data)


def main():
    rng = random.Random(15)
    writer = gguf.GGUFWriter(OUTPUT, "llama")
    writer.add_name("block types")
    for name in ["BF16", *HALVES]:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = COLUMNS // elements
        raw = b"".join(block(rng, name, size) for _ in range(ROWS * count))
        stored = np.frombuffer(raw, dtype=np.uint8).reshape(ROWS, count * size)
        expected = gguf.quants.dequantize(stored, kind).astype(np.float32)
        assert expected.shape == (ROWS, COLUMNS) and np.isfinite(expected).all()
        writer.add_tensor(name, stored, raw_dtype=kind)
        writer.add_tensor(name + ".expected", expected)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
