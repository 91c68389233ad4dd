#!/usr/bin/env python3
"""Measures how much an adapter's answers change when its F32 matrices are rounded to BF16, as
Sluice prepares them for a base model whose products take BF16 inputs. Both adapters run on the base
model in F32, so that nothing else differs.

    python3 tools/compare_adapters.py models/demo models/demo-adapters/poet [--sluice build/sluice]
        [--texts tests/golden/demo] [--every 1] [--seed 1]

An adapter that is stored in BF16 is compared with a random F32 one that rounds to it: each number
is drawn from those that round to the stored one. Texts and figures are those of compare_dtypes.py.
"""

import argparse
import json
import os
import random
import shutil
import struct
import sys
import tempfile
from array import array

import compare_dtypes


def round_to_bf16(words):
    """Rounds floats, given as 32-bit words, to the nearest BF16; ties go to the even one."""
    return array("I", ((word + 0x7fff + (word >> 16 & 1)) & 0xffff0000 for word in words))


def draw_f32(halves, seed):
    """Floats, as 32-bit words, that round to the given BF16 numbers; zeros stay zeros."""
    numbers = random.Random(seed)
    return array("I", ((half << 16) + (numbers.randint(-0x7fff, 0x7fff) if half & 0x7fff else 0)
                       for half in halves))


def write(folder, adapter, header, words):
    """An adapter in F32 with the configuration of another."""
    shutil.copy(os.path.join(adapter, "adapter_config.json"), folder)
    data = 0
    for entry in header.values():
        size = 4
        for extent in entry["shape"]:
            size *= extent
        entry.update(dtype="F32", data_offsets=[data, data + size])
        data += size
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text + words.tobytes())


def read(adapter):
    """The tensors' entries in the order of their bytes, the type of all of them, and the bytes."""
    with open(os.path.join(adapter, "adapter_model.safetensors"), "rb") as stream:
        data = stream.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    types = {entry["dtype"] for entry in header.values()}
    if types not in ({"F32"}, {"BF16"}):
        sys.exit(f"{adapter}: its tensors are {', '.join(sorted(types))}, not F32 or BF16")
    ordered = dict(sorted(header.items(), key=lambda item: item[1]["data_offsets"]))
    return ordered, types.pop(), data[begin:]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("adapter")
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--texts", default="tests/golden/demo")
    parser.add_argument("--every", type=int, default=1, help="look at every Nth position")
    parser.add_argument("--seed", type=int, default=1, help="of the numbers that are drawn")
    arguments = parser.parse_args()
    header, stored, data = read(arguments.adapter)
    exact = array("I", data) if stored == "F32" else draw_f32(array("H", data), arguments.seed)
    with tempfile.TemporaryDirectory() as exact_folder, \
            tempfile.TemporaryDirectory() as rounded_folder:
        write(exact_folder, arguments.adapter, header, exact)
        write(rounded_folder, arguments.adapter, header, round_to_bf16(exact))
        compare_dtypes.compare(
            [compare_dtypes.Model(arguments.sluice, arguments.model, "f32",
                                  ["--adapter", f"a={folder}", "--model-name", "a"])
             for folder in (exact_folder, rounded_folder)], arguments.texts, arguments.every)


if __name__ == "__main__":
    main()
