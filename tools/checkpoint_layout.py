"""Lists the tensors of a checkpoint by their Hugging Face names and makes a safetensors header.
Needs Python's standard library only, because the machine with the GPU may have no more.
"""

import json
import math
import struct
from dataclasses import dataclass

DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
DTYPE_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple
    scale: float  # a float32
    offset: float = 0.0

    @property
    def elements(self):
        return math.prod(self.shape)


def with_std(name, shape, std, offset=0.0):
    (scale,) = struct.unpack("<f", struct.pack("<f", std * math.sqrt(3.0) / (1 << 23)))
    return Tensor(name, tuple(shape), scale, offset)


def tensors_of(config, attention_gain=1.3, branch_gain=1.0, logit_std=2.0):
    """Every tensor of a model with this config.json. Scales are chosen so that the logits' standard
    deviation is about logit_std and every layer has an effect."""
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
