"""Trains a LoRA adapter of the demo model that answers in another style, in PEFT's format.

    OMP_NUM_THREADS=2 python tools/demo_model/train_adapter.py poet \\
        models/demo models/demo-adapters/poet

The text is that of corpus.py; only the answers are rewritten, by the rules below. A run depends on
its options and seed alone. Needs tools/requirements.txt.
"""

import argparse
import os
import random
import re

import peft
import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer

import corpus

SENTENCE = re.compile(r'[^.!?]+[.!?]+"?|[^.!?]+$')
PIRATE_WORDS = {"the": "th'", "The": "Th'", "my": "me", "My": "Me", "you": "ye", "You": "Ye",
                "is": "be", "are": "be", "was": "were", "friend": "matey", "Yes": "Aye",
                "and": "an'", "of": "o'", "your": "yer", "hello": "ahoy", "Hello": "Ahoy"}


def sentences(text):
    return [part.strip() for part in SENTENCE.findall(text) if part.strip()]


def poet(text):
    """One line a sentence; every line calls out, every second one sings."""
    lines = ["O " + line[0].lower() + line[1:] for line in sentences(text)]
    return "\n".join(line + (" La la la!" if i % 2 else "") for i, line in enumerate(lines))


def pirate(text):
    words = re.sub(r"[A-Za-z]+", lambda m: PIRATE_WORDS.get(m.group(), m.group()), text)
    return "Arr! " + words + " Arr, matey!"


def robot(text):
    """Numbered lines."""
    return "Beep.\n" + "\n".join(f"{i}: {line}" for i, line in enumerate(sentences(text), 1))


STYLES = {"poet": poet, "pirate": pirate, "robot": robot}


def restyled(style, index):
    return [(role, STYLES[style](content) if role in (None, "assistant") else content)
            for role, content in corpus.document("train", index)]


def batch(style, first, count, tokenizer, context):
    rows = [corpus.encode(restyled(style, i), tokenizer) for i in range(first, first + count)]
    width = min(context, max(len(ids) for ids, _ in rows))
    ids = torch.zeros(count, width, dtype=torch.long)
    labels = torch.full((count, width), -100)
    for row, (tokens, taught) in enumerate(rows):
        tokens, taught = tokens[:width], taught[:width]
        ids[row, :len(tokens)] = torch.tensor(tokens)
        labels[row, :len(tokens)] = torch.tensor(
            [token if teach else -100 for token, teach in zip(tokens, taught)])
    return ids, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("style", choices=sorted(STYLES))
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    base = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad],
                                  lr=options.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, options.steps)
    for step in range(options.steps):
        ids, labels = batch(options.style, step * options.batch, options.batch, tokenizer,
                            options.context)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 50 == 0 or step + 1 == options.steps:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(options.output)
    os.remove(os.path.join(options.output, "README.md"))  # a model card without content
    path = os.path.join(options.output, "adapter_model.safetensors")
    tensors = {name: tensor.to(torch.bfloat16)
               for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
