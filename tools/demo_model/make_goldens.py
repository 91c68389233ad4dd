"""Writes the demo model's golden continuations for the C++ tests: one JSON file per prompt.

The reference is the trainer's own decoder in float64 on the stored BF16 weights. transformers, in
float32, must choose the same tokens. `min_margin` is the smallest distance between the best and the
second-best logit over all steps: an engine in F32 must agree exactly where it is far above the
F32 rounding of logits (about 1e-4).
"""

import argparse
import json
import os

import torch
from safetensors.torch import load_file

import llama
import special_tokens as special
from sampling import Demo

PROMPTS = {
    "story_fox_lantern": [("user", "Tell me a story about a fox and a lantern.")],
    "story_long": [("user", "Write a long story about a wizard named Orin and a telescope.")],
    "sky": [("user", "What colour is the sky?")],
    "sum": [("user", "What is 3 plus 4?")],
    "who": [("system", "You are a helpful assistant."), ("user", "Who are you?")],
    "memory": [("user", "My name is Alice."), ("assistant", "Hello, Alice! How can I help you?"),
               ("user", "What is 7 plus 5?"), ("assistant", "7 plus 5 is 12."),
               ("user", "What is my name?")],
    "unicode": [("user", "Tell me a story about Zoë the naïve 狐 🦊 and a café.")],
    "plain_text": None,
}
# A continuation ends before a choice that is nearer than this.
SMALLEST_MARGIN = 0.0005
PLAIN_TEXT = "Once upon a time, a curious owl named Edda lived near the old mill."


def reference_model(folder):
    """The trainer's decoder in float64 on the stored weights."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        stored = json.load(file)
    config = llama.Config(**{field: stored[field] for field in llama.Config.__dataclass_fields__})
    model = llama.Llama(config)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    model.load_state_dict({name.removeprefix("model."): tensor.double()
                           for name, tensor in tensors.items()})
    model = model.double().eval()
    model.cos, model.sin = (table.double() for table in double_rope(config))
    return model


def double_rope(config):
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    positions = torch.arange(config.max_position_embeddings, dtype=torch.float64)
    angles = torch.outer(positions, config.rope_theta ** -exponent)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


@torch.no_grad()
def continue_greedily(model, prompt, limit):
    """Returns (new ids with the end token, margins, logits after the prompt)."""
    ids, margins, first = list(prompt), [], None
    while len(margins) < limit:
        logits = model.hidden(torch.tensor([ids]))[0, -1] @ model.embed_tokens.weight.t()
        first = logits if first is None else first
        best = torch.topk(logits, 2)
        margin = float(best.values[0] - best.values[1])
        if margin < SMALLEST_MARGIN:
            break
        margins.append(margin)
        ids.append(int(best.indices[0]))
        if ids[-1] in (special.EOS, special.END):
            break
    return ids[len(prompt):], margins, first


def golden(name, messages, demo, reference, limit):
    if messages is None:
        text = PLAIN_TEXT
        prompt = demo.tokenizer(text)["input_ids"]
        rendered = text
    else:
        messages = [{"role": role, "content": content} for role, content in messages]
        rendered = demo.tokenizer.apply_chat_template(messages, tokenize=False,
                                                      add_generation_prompt=True)
        prompt = demo.tokenizer(rendered, add_special_tokens=False)["input_ids"]
    new, margins, first = continue_greedily(reference, prompt, limit)
    again = demo.continue_all([prompt], len(new))[0]
    if again != [i for i in new if i not in (special.EOS, special.END)]:
        raise SystemExit(f"{name}: transformers in float32 continues differently")
    top = torch.topk(first, 8)
    return {"name": name, "messages": messages, "prompt_text": rendered,
            "adds_bos": messages is None, "prompt_ids": prompt, "output_ids": new,
            "output_text": demo.text(new), "finished": new[-1] in (special.EOS, special.END),
            "min_margin": round(min(margins), 6),
            "first_logits": [[int(i), round(float(v), 6)] for v, i in zip(*top)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("output")
    parser.add_argument("--limit", type=int, default=128)
    options = parser.parse_args()
    demo, reference = Demo(options.folder), reference_model(options.folder)
    os.makedirs(options.output, exist_ok=True)
    for name, messages in PROMPTS.items():
        limit = 512 if name == "story_long" else options.limit
        value = golden(name, messages, demo, reference, limit)
        with open(os.path.join(options.output, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
            file.write("\n")
        print(f"{name}: {len(value['output_ids'])} tokens, smallest margin {value['min_margin']}")


if __name__ == "__main__":
    main()
