"""Trains the demo model on text that corpus.py writes while training; nothing is read twice.

The run is a function of its options and seeds alone, but for `--minutes`: the learning rate follows
the share of the time (or of `--tokens`, which is exactly reproducible) that is used up.
"""

import argparse
import dataclasses
import json
import math
import os
import time

import torch
from tokenizers import Tokenizer

import corpus
import llama

HELDOUT_DOCUMENTS = 256


def learning_rate(progress, step, options):
    warm = min(1.0, (step + 1) / options.warmup)
    low = options.lr * 0.02
    return warm * (low + 0.5 * (options.lr - low) * (1 + math.cos(math.pi * min(1.0, progress))))


def heldout_batches(tokenizer, options):
    return [(torch.from_numpy(ids), torch.from_numpy(targets)) for _, ids, targets in
            corpus.batches("heldout", 0, HELDOUT_DOCUMENTS, tokenizer, options.context,
                           options.batch_tokens, seed=0)]


@torch.no_grad()
def heldout_loss(model, batches):
    total = count = 0
    for ids, targets in batches:
        taught = int((targets != -100).sum())
        total += float(model.loss(ids, targets)) * taught
        count += taught
    return total / count


def save(model, state, options):
    path = os.path.join(options.output, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "config": dataclasses.asdict(model.config),
                "state": state, "options": vars(options)}, path + ".tmp")
    os.replace(path + ".tmp", path)


def optimizer_for(model, options):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": options.weight_decay},
              {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.98), fused=True)


def train(options):
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_file(options.tokenizer)
    model = llama.Llama(llama.Config(vocab_size=tokenizer.get_vocab_size()))
    optimizer = optimizer_for(model, options)
    heldout = heldout_batches(tokenizer, options)
    log = open(os.path.join(options.output, "log.jsonl"), "w", encoding="utf-8")
    state = {"step": 0, "tokens": 0, "documents": 0, "seconds": 0.0}
    start = last_save = time.monotonic()
    stream = corpus.batches("train", 0, 1 << 30, tokenizer, options.context,
                            options.batch_tokens, options.seed)
    for state["documents"], ids, targets in stream:
        progress = max((time.monotonic() - start) / (60 * options.minutes),
                       state["tokens"] / options.tokens)
        if progress >= 1.0:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, state["step"], options)
        loss = model.loss(torch.from_numpy(ids), torch.from_numpy(targets))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        state["step"] += 1
        state["tokens"] += int((ids != 0).sum())
        state["seconds"] = time.monotonic() - start
        entry = dict(state, loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
        if state["step"] % options.heldout_every == 0:
            entry["heldout"] = heldout_loss(model, heldout)
            print(json.dumps(entry), flush=True)
        log.write(json.dumps(entry) + "\n")
        log.flush()
        if time.monotonic() - last_save > options.save_seconds:
            save(model, state, options)
            last_save = time.monotonic()
    save(model, state, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", required=True, help="folder for checkpoint.pt and log.jsonl")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this long")
    parser.add_argument("--tokens", type=float, default=1e18, help="stop after so many tokens")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--heldout-every", type=int, default=100, help="steps")
    parser.add_argument("--save-seconds", type=float, default=180)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    train(options)


if __name__ == "__main__":
    main()
