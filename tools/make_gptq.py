#!/usr/bin/env python3
"""Packs the layers' matrices of a checkpoint directory in GPTQ's form, rounded to nearest: another
form of the same model to compare with. (GPTQ itself chooses better codes.)

    python3 tools/make_gptq.py DIR OUTPUT [--bits 4] [--group 128] [--zeros] [--desc-act]

Needs numpy. --zeros: groups with zero points; else codes are symmetric. --desc-act: columns belong
to groups in another order, one for all matrices of a width.
"""

import argparse
import json
import os
import shutil
import struct

import numpy as np

PACKED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def read_checkpoint(directory):
    """name -> (dtype, shape, bytes)"""
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write_checkpoint(directory, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


def words_of(codes, bits):
    """Codes along the first axis, packed into 32-bit words, the first in the lowest bits."""
    per_word = 32 // bits
    parts = codes.astype(np.uint32).reshape(-1, per_word, codes.shape[1])
    return sum(parts[:, i] << np.uint32(bits * i) for i in range(per_word)).astype(np.uint32)


def pack(weight, a):
    """The tensors of a module, from weight [rows, columns]."""
    rows, columns = weight.shape
    levels = 2 ** a.bits - 1
    places = np.arange(columns)
    if a.desc_act:
        places = np.random.default_rng(columns).permutation(columns)
    order = np.argsort(places)  # the columns, group by group
    groups = weight[:, order].reshape(rows, columns // a.group, a.group)
    if a.zeros:
        low = np.minimum(groups.min(axis=2), 0)
        scales = (np.maximum(groups.max(axis=2), 0) - low) / levels
    else:
        scales = 2 * np.abs(groups).max(axis=2) / levels
    scales = np.maximum(scales, 1e-6).astype(np.float16)
    wide = scales.astype(np.float32)
    zeros = np.rint(-low / wide).clip(1, levels) if a.zeros else np.full_like(wide, levels // 2 + 1)
    codes = (np.rint(groups / wide[..., None]) + zeros[..., None]).clip(0, levels)
    qweight = words_of(codes.reshape(rows, columns)[:, places].T, a.bits)
    # The first version of the format stores zero points less 1.
    qzeros = words_of((zeros - 1).astype(np.uint32), a.bits)
    group_of = (places // a.group).astype(np.int32)
    return {"qweight": ("I32", qweight.shape, qweight.tobytes()),
            "qzeros": ("I32", qzeros.T.shape, np.ascontiguousarray(qzeros.T).tobytes()),
            "scales": ("F16", scales.T.shape, np.ascontiguousarray(scales.T).tobytes()),
            "g_idx": ("I32", group_of.shape, group_of.tobytes())}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("output")
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--desc-act", action="store_true")
    a = parser.parse_args()
    shutil.copytree(a.directory, a.output)
    tensors = {}
    for name, (dtype, shape, data) in read_checkpoint(a.directory).items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] not in PACKED:
            tensors[name] = (dtype, shape, data)
            continue
        if dtype != "BF16" or shape[1] % a.group != 0:
            raise SystemExit(f"{name}: {dtype} {shape}; expected BF16, and columns in groups of "
                             f"{a.group}")
        weight = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        for part, tensor in pack(weight.reshape(shape), a).items():
            tensors[f"{module}.{part}"] = tensor
    write_checkpoint(a.output, tensors)
    path = os.path.join(a.output, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = {
        "quant_method": "gptq", "bits": a.bits, "group_size": a.group, "desc_act": a.desc_act,
        "sym": not a.zeros, "checkpoint_format": "gptq", "pack_dtype": "int32"}
    with open(path, "w", encoding="utf-8") as out:
        json.dump(config, out, indent=2)


if __name__ == "__main__":
    main()
