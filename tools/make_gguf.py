#!/usr/bin/env python3
"""Writes a checkpoint directory as a GGUF file, with the package gguf: another program's view of
the format, to compare answers with.

    python3 tools/make_gguf.py models/demo demo.gguf --type Q8_0

Needs tools/requirements-gguf.txt. Reads models of the architectures llama, qwen2 and qwen3 with a
byte-level tokenizer.json, or with one that was made from SentencePiece. The matrices get the type;
norms and biases are F32. Blocks of Q4_K and Q6_K are made by tools/k_quants.py, because the package
cannot quantize to them.
"""

import argparse
import json
import os
import re
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType, TokenType, quants

import k_quants

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q4_K", "Q6_K"]
ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
}


def read_json(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def read_tensors(directory):
    """Names and values in F32 of model.safetensors."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]])
        yield name, values.astype(np.float32).reshape(entry["shape"])


def pair_rows(values, heads):
    """The order in which files of "llama" hold the rows of queries and keys."""
    shape = values.shape
    split = values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(shape)


def add_config(writer, config):
    heads = config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def add_tokenizer(writer, directory, config, pre):
    tokenizer = read_json(directory, "tokenizer.json")
    texts = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    types = {number: TokenType.NORMAL for number in texts}
    for added in tokenizer["added_tokens"]:
        texts[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    tokens = []
    for number in range(config["vocab_size"]):
        tokens.append(texts.get(number, f"[PAD{number}]"))
        types.setdefault(number, TokenType.UNUSED)
    merges = [merge if isinstance(merge, str) else " ".join(merge)
              for merge in tokenizer["model"]["merges"]]
    if tokenizer["model"].get("byte_fallback"):
        for number, text in enumerate(tokens):
            if re.fullmatch("<0x[0-9A-F]{2}>", text):
                types[number] = TokenType.BYTE
        writer.add_tokenizer_model("llama")
        scores = {}  # merges are in the order of the scores of what they make
        for place, merge in enumerate(merges):
            scores.setdefault("".join(merge.split(" ")), -float(place))
        writer.add_token_scores([scores.get(text, -1e9) for text in tokens])
        writer.add_unk_token_id(0)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types([types[number] for number in range(len(tokens))])
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    ends = config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    writer.add_eos_token_id(ends[0])
    if len(ends) > 1:
        writer.add_eot_token_id(ends[1])
    processor = tokenizer.get("post_processor") or {}
    writer.add_add_bos_token("SpecialToken" in json.dumps(processor.get("single", "")))
    template = read_json(directory, "tokenizer_config.json").get("chat_template")
    if template:
        writer.add_chat_template(template)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory")
    parser.add_argument("output")
    parser.add_argument("--type", choices=TYPES, default="F16", help="of the matrices (F16)")
    parser.add_argument("--pre", default="gpt-2",
                        help="gpt-2, llama-bpe or qwen2: how text is split (gpt-2)")
    parser.add_argument("--no-tokenizer", action="store_true")
    options = parser.parse_args()
    config = read_json(options.directory, "config.json")
    arch = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(options.output, gguf.MODEL_ARCH_NAMES[arch])
    add_config(writer, config)
    if not options.no_tokenizer:
        add_tokenizer(writer, options.directory, config, options.pre)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"]}
    heads["k_proj"] = config.get("num_key_value_heads", heads["q_proj"])
    for name, values in read_tensors(options.directory):
        module = name.split(".")[-2]
        if arch == gguf.MODEL_ARCH.LLAMA and module in heads:
            values = pair_rows(values, heads[module])
        kind = GGMLQuantizationType[options.type if values.ndim > 1 else "F32"]
        k_quant = kind.name in ("Q4_K", "Q6_K")
        data = (k_quants.quantize(values, kind.name) if k_quant else
                quants.quantize(values, kind))
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data,
                          raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
