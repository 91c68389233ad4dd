"""Random checkpoints from a recipe: weights are a pure function of (seed, tensor name, element).

Element i of tensor `name` of a model with `seed` is

    x = output number i + 1 of SplitMix64 seeded with (seed + fnv1a64(name)) mod 2^64
    k = (x >> 40) - 2^23                      an integer in [-2^23, 2^23)
    value = offset + float32(k) * scale       each step in float32

rounded to nearest even when stored as bf16 or f16. tests/golden/golden_case.cpp computes the same
values, so that golden models need no weights in the repository.
Standard deviation: scale * 2^23 / sqrt(3).
"""

import json
import os

import numpy as np

from checkpoint_layout import DTYPE_BYTES, header_bytes

GAMMA = np.uint64(0x9E3779B97F4A7C15)
TORCH_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
CHUNK = 1 << 22  # elements generated at a time


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value


def values(tensor, seed, begin, end):
    """Elements [begin, end) as float32."""
    start = np.uint64((seed + fnv1a64(tensor.name)) % 2**64)
    with np.errstate(over="ignore"):
        z = np.arange(begin + 1, end + 1, dtype=np.uint64)
        z *= GAMMA
        z += start
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    k = (z >> np.uint64(40)).astype(np.int32) - np.int32(1 << 23)
    result = k.astype(np.float32)
    result *= np.float32(tensor.scale)
    if tensor.offset != 0:
        result += np.float32(tensor.offset)
    return result


def encode(array, dtype):
    """float32 values as the bytes of a dtype."""
    if dtype == "f32":
        return array.astype("<f4").tobytes()
    if dtype == "f16":
        return array.astype("<f2").tobytes()
    bits = array.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype("<u2").tobytes()


def write_safetensors(path, tensors, seed, dtype, progress=None):
    """Streams the file; memory does not depend on its size."""
    with open(path + ".part", "wb") as out:
        out.write(header_bytes(tensors, dtype))
        for tensor in tensors:
            for begin in range(0, tensor.elements, CHUNK):
                end = min(begin + CHUNK, tensor.elements)
                out.write(encode(values(tensor, seed, begin, end), dtype))
                if progress:
                    progress(end - begin)
    os.replace(path + ".part", path)


def write_weights(directory, tensors, seed, dtype, shard_bytes=None, progress=None):
    """model.safetensors, or shards of at most shard_bytes (a larger tensor gets its own) with an
    index, named as transformers names them."""
    shards = [[]]
    used = 0
    for tensor in tensors:
        size = tensor.elements * DTYPE_BYTES[dtype]
        if shard_bytes and shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(tensor)
        used += size
    if len(shards) == 1:
        write_safetensors(os.path.join(directory, "model.safetensors"), tensors, seed, dtype,
                          progress)
        return
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(os.path.join(directory, name), shard, seed, dtype, progress)
        weight_map.update({tensor.name: name for tensor in shard})
    total = sum(t.elements for t in tensors) * DTYPE_BYTES[dtype]
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)
