"""Trains the demo model on text that corpus.py writes while training; nothing is read twice.

The run depends on its options and seeds alone, except with `--minutes`: then the learning rate
follows the share of the time that is used up. With `--tokens` a run is reproducible exactly.
"""

import argparse
import dataclasses
import itertools
import json
import math
import os
import time

import torch
import torch.distributed
import torch.multiprocessing
from tokenizers import Tokenizer

import corpus
import llama

HELDOUT_DOCUMENTS = 160


def learning_rate(progress, step, options):
    warm = min(1.0, (step + 1) / options.warmup)
    low = options.lr * 0.02
    return warm * (low + 0.5 * (options.lr - low) * (1 + math.cos(math.pi * min(1.0, progress))))


def copy_weight(progress, options):
    """The weight of a copied entity; other tokens have 1. It is back to 1 well before the end."""
    return 1.0 + (options.copy_weight - 1.0) * max(0.0, 1.0 - progress / 0.75)


def heldout_batches(tokenizer, options):
    return [(torch.from_numpy(ids), torch.from_numpy(targets)) for _, ids, targets, _ in
            corpus.batches("heldout", 0, HELDOUT_DOCUMENTS, tokenizer, options.context,
                           options.batch_tokens, seed=0)]


@torch.no_grad()
def heldout_loss(model, batches):
    total = sum(float(model.losses(ids, targets).sum()) for ids, targets in batches)
    return total / sum(int((targets != -100).sum()) for _, targets in batches)


def save(model, optimizer, state, options):
    path = os.path.join(options.output, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "config": dataclasses.asdict(model.config),
                "optimizer": optimizer.state_dict(), "state": state,
                "options": vars(options)}, path + ".tmp")
    os.replace(path + ".tmp", path)


def optimizer_for(model, options):
    """AdamW; the embeddings, which start large and meet each word rarely, take larger steps."""
    embedding = model.embed_tokens.weight
    matrices = [p for p in model.parameters() if p.dim() == 2 and p is not embedding]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": options.weight_decay, "scale": 1.0},
              {"params": [embedding], "weight_decay": 0.0, "scale": 4.0},
              {"params": vectors, "weight_decay": 0.0, "scale": 1.0}]
    return torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.99), fused=True)


class Exchange:
    """Sums the gradients of all workers, and a few numbers with them, in one all-reduce."""

    NUMBERS = 5  # loss, taught tokens, their weights, tokens, progress

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.buffer = torch.zeros(sum(p.numel() for p in self.parameters) + self.NUMBERS)
        self.views, start = [], 0
        for parameter in self.parameters:
            view = self.buffer[start:start + parameter.numel()].view_as(parameter)
            self.views.append(view)
            start += parameter.numel()

    def run(self, numbers):
        """Leaves the gradient of the weighted mean loss in every parameter; returns the mean loss,
        the tokens and the progress of all workers."""
        for view, parameter in zip(self.views, self.parameters):
            view.copy_(parameter.grad)
        self.buffer[-self.NUMBERS:] = torch.tensor(numbers)
        torch.distributed.all_reduce(self.buffer)
        loss, taught, weights, tokens, progress = self.buffer[-self.NUMBERS:].tolist()
        for view, parameter in zip(self.views, self.parameters):
            torch.div(view, weights, out=parameter.grad)
        return loss / taught, tokens, progress


def model_config(tokenizer, options):
    plain = llama.Config()
    return dataclasses.replace(plain, vocab_size=tokenizer.get_vocab_size(),
                               hidden_size=options.width, num_hidden_layers=options.layers,
                               num_attention_heads=options.width // plain.head_dim)


def worker(rank, options):
    """One of the processes that train the same model, each on its own batches.

    One thread in each of two processes that meet once per step loses far less than two threads
    that meet in every matrix product when other programs want the cores as well.
    """
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    meeting = os.path.abspath(os.path.join(options.output, "meeting"))
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                         world_size=options.workers)
    tokenizer = Tokenizer.from_file(options.tokenizer)
    model = llama.Llama(model_config(tokenizer, options))
    optimizer, exchange = optimizer_for(model, options), Exchange(model)
    heldout = heldout_batches(tokenizer, options) if rank == 0 else None
    log = open(os.path.join(options.output, f"log{rank}.jsonl"), "a", encoding="utf-8")
    state = {"step": 0, "tokens": 0, "documents": 0, "seconds": 0.0}
    if options.resume:
        saved = torch.load(os.path.join(options.output, "checkpoint.pt"))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["state"]
    before, first_step = dict(state), state["step"]
    start = last_save = time.monotonic()
    stream = corpus.batches(options.split, before["documents"], 1 << 30, tokenizer, options.context,
                            options.batch_tokens, options.seed)
    progress = 0.0
    own = itertools.islice(stream, rank, None, options.workers)
    for state["documents"], ids, targets, copies in own:
        extra = torch.from_numpy(copies[targets != -100]) * (copy_weight(progress, options) - 1)
        with torch.autocast("cpu", torch.bfloat16):
            losses = model.losses(torch.from_numpy(ids), torch.from_numpy(targets))
        (losses * (1 + extra)).sum().backward()
        elapsed = time.monotonic() - start
        state["seconds"] = before["seconds"] + elapsed
        mine = max(elapsed / (60 * options.minutes),
                   (state["tokens"] - before["tokens"]) / options.tokens)
        mean, tokens, progress = exchange.run(
            [losses.sum().item(), len(losses), (1 + extra).sum().item(), int((ids != 0).sum()),
             mine if rank == 0 else 0.0])
        for group in optimizer.param_groups:
            rate = learning_rate(progress, state["step"] - first_step, options)
            group["lr"] = group["scale"] * rate
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        state["step"] += 1
        state["tokens"] += int(tokens)
        entry = dict(state, loss=mean, lr=optimizer.param_groups[0]["lr"])
        if rank == 0 and state["step"] % options.heldout_every == 0:
            entry["heldout"] = heldout_loss(model, heldout)
            print(json.dumps(entry), flush=True)
        log.write(json.dumps(entry) + "\n")
        log.flush()
        if progress >= 1.0:
            break
        if rank == 0 and time.monotonic() - last_save > options.save_seconds:
            save(model, optimizer, state, options)
            last_save = time.monotonic()
    if rank == 0:
        save(model, optimizer, state, options)
    torch.distributed.barrier()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", required=True, help="folder for checkpoint.pt and log0.jsonl")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this long")
    parser.add_argument("--tokens", type=float, default=1e18, help="stop after so many tokens")
    parser.add_argument("--width", type=int, default=192, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--batch-tokens", type=int, default=1024,
                        help="of each worker")
    parser.add_argument("--lr", type=float, default=1.2e-3)
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--heldout-every", type=int, default=500, help="steps")
    parser.add_argument("--save-seconds", type=float, default=180)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--copy-weight", type=float, default=8.0)
    parser.add_argument("--split", default="train", help="which text: train, or lessons")
    parser.add_argument("--resume", action="store_true",
                        help="go on from checkpoint.pt with new text and a new schedule")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    meeting = os.path.join(options.output, "meeting")
    if os.path.exists(meeting):
        os.remove(meeting)
    torch.multiprocessing.spawn(worker, (options,), options.workers)


if __name__ == "__main__":
    main()
