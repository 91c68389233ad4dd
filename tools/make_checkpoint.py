#!/usr/bin/env python3
"""Writes a random-weight checkpoint of a named shape in Hugging Face form, tokenizer and chat
template included, for tests and measurements. Needs numpy; memory does not depend on the size.

    tools/make_checkpoint llama-1b DIR [--seed 1] [--dtype bf16|f16|f32] [--shard-size 500MB]

The same name, seed and dtype give the same bytes everywhere (tools/checkpoint_recipe.py).
"""

import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checkpoint_layout as layout  # noqa: E402
import checkpoint_recipe as recipe  # noqa: E402
import random_tokenizer  # noqa: E402

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
                 "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def shape(family, tokenizer, hidden, ffn, layers, heads, kv_heads, vocab, context, theta, **more):
    config = {
        "architectures": [ARCHITECTURES[family]], "model_type": family,
        "hidden_act": "silu", "initializer_range": 0.02, "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": context,
        "rms_norm_eps": 1e-5 if family in ("llama", "mistral") else 1e-6, "rope_theta": theta,
        "tie_word_embeddings": False, "use_cache": True,
    }
    if family in ("llama", "qwen3"):
        config["attention_bias"] = False
    config.update(more)
    return config, tokenizer


def llama3_rope(factor, original):
    return {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original, "rope_type": "llama3"}


def tiny(family, theta=10000.0, **more):
    tokenizer = "qwen" if family.startswith("qwen") else "tiny"
    return shape(family, tokenizer, 128, 320, 4, 8, 2, 1024, 2048, theta, **more)


# Sizes of the public models they are named after, or tiny ones of each family.
SHAPES = {
    "llama-1b": shape("llama", "llama", 2048, 8192, 16, 32, 8, 128256, 131072, 500000.0,
                      head_dim=64, tie_word_embeddings=True, mlp_bias=False,
                      rope_scaling=llama3_rope(32.0, 8192)),
    "llama-8b": shape("llama", "llama", 4096, 14336, 32, 32, 8, 128256, 131072, 500000.0,
                      mlp_bias=False, rope_scaling=llama3_rope(8.0, 8192)),
    "mistral-7b": shape("mistral", "tiny", 4096, 14336, 32, 32, 8, 32000, 32768, 10000.0,
                        sliding_window=4096),
    "qwen2.5-0.5b": shape("qwen2", "qwen", 896, 4864, 24, 14, 2, 151936, 32768, 1000000.0,
                          tie_word_embeddings=True, use_sliding_window=False,
                          sliding_window=32768, max_window_layers=21),
    "qwen3-0.6b": shape("qwen3", "qwen", 1024, 3072, 28, 16, 8, 151936, 40960, 1000000,
                        head_dim=128, tie_word_embeddings=True, use_sliding_window=False,
                        sliding_window=None, max_window_layers=28),
    "tiny-llama": tiny("llama"),
    "tiny-llama3": tiny("llama", 500000.0, tie_word_embeddings=True,
                        rope_scaling=llama3_rope(8.0, 256)),
    "tiny-llama-linear": tiny("llama", rope_scaling={"type": "linear", "factor": 2.0}),
    "tiny-llama-mqa": tiny("llama", num_key_value_heads=1, head_dim=24, attention_bias=True,
                           mlp_bias=True),
    "tiny-mistral": tiny("mistral", sliding_window=32),
    "tiny-qwen2": tiny("qwen2", 1000000.0, use_sliding_window=False, sliding_window=32768,
                       max_window_layers=2, rope_scaling=None),
    "tiny-qwen2-yarn": tiny("qwen2", 1000000.0, use_sliding_window=False, sliding_window=None,
                            max_window_layers=4,
                            rope_scaling={"type": "yarn", "factor": 4.0,
                                          "original_max_position_embeddings": 512}),
    "tiny-qwen3": tiny("qwen3", 1000000, head_dim=32, tie_word_embeddings=True,
                       use_sliding_window=False, sliding_window=None, max_window_layers=4),
}


def parse_size(text):
    match = re.fullmatch(r"(\d+)\s*([kmg]i?b?)?", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 2GiB")
    unit = match.group(2) or ""
    base = 1024 if "i" in unit else 1000
    return int(match.group(1)) * base ** (" kmg".index(unit[0]) if unit else 0)


class Progress:
    def __init__(self, total):
        self.total, self.done, self.shown = total, 0, -1

    def __call__(self, elements):
        self.done += elements
        percent = 100 * self.done // self.total
        if percent != self.shown and sys.stderr.isatty():
            print(f"\r{percent:3d} %", end="\n" if percent == 100 else "", file=sys.stderr)
        self.shown = percent


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
        out.write("\n")


def make(name, directory, seed, dtype, shard_bytes):
    config, tokenizer = SHAPES[name]
    os.makedirs(directory, exist_ok=True)
    ids = random_tokenizer.write_tokenizer(directory, tokenizer, config["vocab_size"],
                                           config["max_position_embeddings"])
    eos = {"llama": ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
           "qwen": ["<|im_end|>", "<|endoftext|>"], "tiny": ["</s>", "<|im_end|>"]}[tokenizer]
    bos = {"llama": "<|begin_of_text|>", "qwen": "<|endoftext|>", "tiny": "<s>"}[tokenizer]
    config = {**config, "bos_token_id": ids[bos], "eos_token_id": ids[eos[0]],
              "torch_dtype": recipe.TORCH_NAMES[dtype]}
    write_json(directory, "config.json", config)
    write_json(directory, "generation_config.json",
               {"bos_token_id": ids[bos], "eos_token_id": [ids[e] for e in eos],
                "do_sample": True, "temperature": 0.7, "top_p": 0.9})
    tensors = layout.tensors_of(config)
    elements = sum(t.elements for t in tensors)
    recipe.write_weights(directory, tensors, seed, dtype, shard_bytes, Progress(elements))
    print(f"{directory}: {name}, {elements / 1e6:.1f} M parameters, "
          f"{elements * layout.DTYPE_BYTES[dtype] / 1e9:.3f} GB of {dtype}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", choices=sorted(SHAPES),
                        help=", ".join(sorted(SHAPES)))
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=sorted(layout.DTYPE_BYTES), default="bf16")
    parser.add_argument("--shard-size", type=parse_size, metavar="BYTES",
                        help="split into files of at most this size, e.g. 500MB; default: one")
    arguments = parser.parse_args()
    make(arguments.name, arguments.directory, arguments.seed, arguments.dtype,
         arguments.shard_size)


if __name__ == "__main__":
    main()
