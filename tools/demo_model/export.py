"""Writes a training checkpoint as a Hugging Face folder with BF16 weights, then loads the folder
with transformers and compares: logits with the trainer's own model, chat template with the
trainer's own rendering, tokenizer with the trainer's own."""

import argparse
import json
import os
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import corpus
import llama
import special_tokens as special

LARGEST_LOGIT_DIFFERENCE = 1e-4


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def model_config(config):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": config.vocab_size, "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads, "head_dim": config.head_dim,
        "hidden_act": "silu", "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta, "rope_scaling": None, "rms_norm_eps": config.rms_norm_eps,
        "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
        "tie_word_embeddings": True, "initializer_range": 0.02, "use_cache": True,
        "bos_token_id": special.BOS, "eos_token_id": [special.EOS, special.END],
        "pad_token_id": special.PAD}


def write_tokenizer(source, folder, config):
    shutil.copyfile(source, os.path.join(folder, "tokenizer.json"))
    names = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    write_json(folder, "special_tokens_map.json", names)
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", **names,
        "added_tokens_decoder": {
            str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": True}
            for i, token in enumerate(special.TOKENS)},
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_position_embeddings,
        "chat_template": special.CHAT_TEMPLATE})


def write_weights(state, folder):
    tensors = {f"model.{name}": tensor.to(torch.bfloat16).contiguous()
               for name, tensor in state.items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def trainer_model(checkpoint):
    """The trainer's model with its weights rounded as they are stored."""
    model = llama.Llama(llama.Config(**checkpoint["config"]))
    model.load_state_dict({name: tensor.to(torch.bfloat16).float()
                           for name, tensor in checkpoint["model"].items()})
    return model.eval()


@torch.no_grad()
def verify(folder, checkpoint, tokenizer_file):
    exported = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    own, own_tokenizer = trainer_model(checkpoint), Tokenizer.from_file(tokenizer_file)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    worst = 0.0
    for index in range(24):
        document = corpus.document("heldout", index)
        ids, _ = corpus.encode(document, own_tokenizer)
        if document[0][0] is not None:
            messages = [{"role": role, "content": text} for role, text in document]
            rendered = tokenizer.apply_chat_template(messages, tokenize=False)
            again = tokenizer(rendered, add_special_tokens=False)["input_ids"]
            if again != ids:
                raise SystemExit(f"chat template differs in held-out document {index}")
        row = torch.tensor([ids[:own.config.max_position_embeddings]])
        difference = (exported(row).logits - own(row)).abs().max().item()
        worst = max(worst, difference)
    if worst > LARGEST_LOGIT_DIFFERENCE:
        raise SystemExit(f"logits differ from transformers by {worst}")
    print(f"verified: 24 documents, largest logit difference to transformers {worst:.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    checkpoint = torch.load(options.checkpoint, map_location="cpu")
    config = llama.Config(**checkpoint["config"])
    os.makedirs(options.output, exist_ok=True)
    write_weights(checkpoint["model"], options.output)
    write_json(options.output, "config.json", model_config(config))
    write_json(options.output, "generation_config.json", {
        "bos_token_id": special.BOS, "eos_token_id": [special.EOS, special.END],
        "pad_token_id": special.PAD, "do_sample": True, "temperature": 0.7, "top_p": 0.95})
    write_tokenizer(options.tokenizer, options.output, config)
    verify(options.output, checkpoint, options.tokenizer)
    parameters = sum(tensor.numel() for tensor in checkpoint["model"].values())
    size = sum(entry.stat().st_size for entry in os.scandir(options.output))
    print(f"{parameters} parameters, {size} bytes, training state {checkpoint['state']}")


if __name__ == "__main__":
    main()
