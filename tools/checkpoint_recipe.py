"""Random checkpoints from a recipe: weights are a pure function of (seed, tensor name, element).

Element i of tensor `name` of a model with `seed` is

    x = output number i + 1 of SplitMix64 seeded with (seed + fnv1a64(name)) mod 2^64
    k = (x >> 40) - 2^23                      an integer in [-2^23, 2^23)
    value = offset + float32(k) * scale       each step in float32

rounded to nearest even when stored as bf16 or f16. tests/golden/golden_case.cpp does the same, so
that golden models need no weights in the repository. Standard deviation: scale * 2^23 / sqrt(3).
"""

import json
import math
import os
import struct
from dataclasses import dataclass

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
DTYPE_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
TORCH_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
CHUNK = 1 << 22  # elements generated at a time


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple
    scale: float  # a float32
    offset: float = 0.0

    @property
    def elements(self):
        return math.prod(self.shape)


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


def with_std(name, shape, std, offset=0.0):
    scale = float(np.float32(std * math.sqrt(3.0) / (1 << 23)))
    return Tensor(name, tuple(shape), scale, offset)


def tensors_of(config, attention_gain=1.3, branch_gain=1.0, logit_std=2.0):
    """Every tensor a model of this config.json has, scaled so that logits spread (their standard
    deviation is about logit_std) and every layer matters."""
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    ffn = config["intermediate_size"]
    vocab = config["vocab_size"]
    family = config["model_type"]
    qkv_bias = family == "qwen2" or config.get("attention_bias", False)
    o_bias = family in ("llama", "qwen3") and config.get("attention_bias", False)
    mlp_bias = config.get("mlp_bias", False)
    result = []

    def matrix(name, rows, columns, gain, bias):
        result.append(with_std(name + ".weight", (rows, columns), gain / math.sqrt(columns)))
        if bias:
            result.append(with_std(name + ".bias", (rows,), 0.3))

    def norm(name, size, mean=1.0):
        result.append(with_std(name + ".weight", (size,), 0.15, mean))

    tied = config.get("tie_word_embeddings", False)
    embedding_std = logit_std / math.sqrt(hidden) if tied else 1.0
    result.append(with_std("model.embed_tokens.weight", (vocab, hidden), embedding_std))
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        norm(layer + "input_layernorm", hidden)
        matrix(layer + "self_attn.q_proj", heads * head_dim, hidden, attention_gain, qkv_bias)
        matrix(layer + "self_attn.k_proj", kv_heads * head_dim, hidden, attention_gain, qkv_bias)
        matrix(layer + "self_attn.v_proj", kv_heads * head_dim, hidden, branch_gain, qkv_bias)
        matrix(layer + "self_attn.o_proj", hidden, heads * head_dim, branch_gain, o_bias)
        if family == "qwen3":
            norm(layer + "self_attn.q_norm", head_dim, attention_gain)
            norm(layer + "self_attn.k_norm", head_dim, attention_gain)
        norm(layer + "post_attention_layernorm", hidden)
        matrix(layer + "mlp.gate_proj", ffn, hidden, branch_gain, mlp_bias)
        matrix(layer + "mlp.up_proj", ffn, hidden, branch_gain, mlp_bias)
        matrix(layer + "mlp.down_proj", hidden, ffn, 2.0 * branch_gain, mlp_bias)
    norm("model.norm", hidden)
    if not tied:
        matrix("lm_head", vocab, hidden, logit_std, False)
    return result


def header_bytes(tensors, dtype):
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        size = tensor.elements * DTYPE_BYTES[dtype]
        header[tensor.name] = {
            "dtype": DTYPE_NAMES[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)  # the data begins at a multiple of 64
    return struct.pack("<Q", len(text)) + text


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
