"""Trains the demo model on text that corpus.py writes while training; nothing is read twice.

The run is a function of its options and seeds alone, but for `--minutes`: the learning rate follows
the share of the time (or of `--tokens`, which is exactly reproducible) that is used up.
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


def heldout_batches(tokenizer, options):
    return [(torch.from_numpy(ids), torch.from_numpy(targets)) for _, ids, targets in
            corpus.batches("heldout", 0, HELDOUT_DOCUMENTS, tokenizer, options.context,
                           options.batch_tokens, seed=0)]


@torch.no_grad()
def heldout_loss(model, batches):
    total = sum(float(model.loss(ids, targets)) for ids, targets in batches)
    return total / sum(int((targets != -100).sum()) for _, targets in batches)


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


class Exchange:
    """Sums the gradients of all workers, and a few numbers with them, in one all-reduce."""

    NUMBERS = 4  # loss, taught tokens, tokens, progress

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.buffer = torch.zeros(sum(p.numel() for p in self.parameters) + self.NUMBERS)
        self.views, start = [], 0
        for parameter in self.parameters:
            view = self.buffer[start:start + parameter.numel()].view_as(parameter)
            self.views.append(view)
            start += parameter.numel()

    def run(self, loss, taught, tokens, progress):
        """Leaves the gradient of the mean loss in every parameter; returns the summed numbers."""
        for view, parameter in zip(self.views, self.parameters):
            view.copy_(parameter.grad)
        self.buffer[-self.NUMBERS:] = torch.tensor([loss, taught, tokens, progress])
        torch.distributed.all_reduce(self.buffer)
        loss, taught, tokens, progress = self.buffer[-self.NUMBERS:].tolist()
        for view, parameter in zip(self.views, self.parameters):
            torch.div(view, taught, out=parameter.grad)
        return loss / taught, tokens, progress


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
    model = llama.Llama(llama.Config(vocab_size=tokenizer.get_vocab_size()))
    optimizer, exchange = optimizer_for(model, options), Exchange(model)
    heldout = heldout_batches(tokenizer, options) if rank == 0 else None
    log = open(os.path.join(options.output, f"log{rank}.jsonl"), "w", encoding="utf-8")
    state = {"step": 0, "tokens": 0, "documents": 0, "seconds": 0.0}
    start = last_save = time.monotonic()
    stream = corpus.batches("train", 0, 1 << 30, tokenizer, options.context,
                            options.batch_tokens, options.seed)
    for state["documents"], ids, targets in itertools.islice(stream, rank, None, options.workers):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model.loss(torch.from_numpy(ids), torch.from_numpy(targets))
        loss.backward()
        state["seconds"] = time.monotonic() - start
        mine = max(state["seconds"] / (60 * options.minutes), state["tokens"] / options.tokens)
        mean, tokens, progress = exchange.run(loss.item(), int((targets != -100).sum()),
                                              int((ids != 0).sum()), mine if rank == 0 else 0.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, state["step"], options)
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
            save(model, state, options)
            last_save = time.monotonic()
    if rank == 0:
        save(model, state, options)
    torch.distributed.barrier()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", required=True, help="folder for checkpoint.pt and log0.jsonl")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this long")
    parser.add_argument("--tokens", type=float, default=1e18, help="stop after so many tokens")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--batch-tokens", type=int, default=1024,
                        help="of each worker")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--heldout-every", type=int, default=500, help="steps")
    parser.add_argument("--save-seconds", type=float, default=180)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    meeting = os.path.join(options.output, "meeting")
    if os.path.exists(meeting):
        os.remove(meeting)
    torch.multiprocessing.spawn(worker, (options,), options.workers)


if __name__ == "__main__":
    main()
