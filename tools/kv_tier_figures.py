#!/usr/bin/env python3
"""Measures what KV tiers give and cost (docs/kv-tiers.md); every row is a ratio within one run.

    tools/kv_tier_figures.py build/release/apps/sluice MODEL FOLDER --figure saving [--pairs 5]
    tools/kv_tier_figures.py build/release/apps/sluice MODEL FOLDER --figure restart [--tokens 4000]
    tools/kv_tier_figures.py build/release/apps/sluice MODEL FOLDER --figure burst [--answers 256]
    tools/kv_tier_figures.py build/release/apps/sluice MODEL FOLDER --figure sharegpt \
        --profile FILE

saving:  gaps between the tokens of a stream while another client sends new prompts at fixed
         times, with --kv-disk (or --kv-ram with --tier ram, --borrow-pages with --tier lent) and
         without it. The lender is a server that does nothing else. --tier none shows the noise: two
         servers without a tier.
restart: the next turn of a chat after a restart, its KV cold on the disk, beside the time that the
         disk needs for these bytes and the processor for the new tokens.
burst:   many prompts at once with KV memory for three of them: `fair` over `stall-free`.
sharegpt: a burst with ShareGPT lengths under `fair`, over the same schedule with free paging, which
         `sluice simulate` plans from the machine's profile (`sluice profile MODEL --output FILE`).
         Beside it the same with KV memory for all, over its simulation: the simulator's own error.
"""

import argparse
import contextlib
import http.client
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import statistics
import subprocess
import threading
import time

from lending_figures import await_metric, coordinator
from long_context_figures import disk_rates
from ready_server import ReadyServer

NEW_TOKENS = 24  # of the next turn, behind the first one's answer
BLOCK = 16
MIB = 1 << 20


class Server(ReadyServer):
    def __init__(self, args, *options, **process):
        super().__init__([args.binary, "serve", args.model, "--served-model-name", "m",
                          "--threads", "2", *args.serve.split(), *options], **process)

    def complete(self, prompt, outputs):
        """The time of the call and of each token, and the tokens that were found."""
        # `min_tokens`: an end token has no text, so the stream would have no event for it.
        body = {"model": "m", "prompt": prompt, "max_tokens": outputs, "temperature": 0,
                "min_tokens": outputs, "stream": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        begun, times, tokens, usage = time.monotonic(), [], [], {}
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(response.read().decode())
        # Parsed later, so that the client takes few of the server's cores.
        lines = [(time.monotonic(), line) for line in response if line.startswith(b"data: {")]
        for came, line in lines:
            event = json.loads(line[6:])
            for choice in event["choices"]:
                ids = choice.get("token_ids") or []
                times += [came] * bool(ids)
                tokens += ids
            usage = event.get("usage") or usage
        connection.close()
        if len(tokens) != outputs:
            raise SystemExit(f"an answer has {len(tokens)} of {outputs} tokens")
        return begun, times, tokens, usage["prompt_tokens_details"]["cached_tokens"]

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(value) for value in
                   re.findall(rf"^[\w:]*{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def read_bytes(self):
        with open(f"/proc/{self.process.pid}/io", encoding="ascii") as stream:
            return int(re.search(r"^read_bytes: (\d+)", stream.read(), re.MULTILINE)[1])


def medians_of(rows):
    return [f"{statistics.median(column):.2f}" for column in zip(*rows)]


def random_prompt(rng, length):
    return [rng.randrange(100, 2900) for _ in range(length)]


def disk_option(args, size="8GiB"):
    shutil.rmtree(os.path.join(args.folder, "kv"), ignore_errors=True)
    return ["--kv-disk", f"{args.folder}/kv:{size},free=1MiB"]


def drop_from_page_cache(folder):
    for entry in os.scandir(folder):
        if entry.is_file():
            file = os.open(entry.path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def kv_bytes_per_token(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    return (2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] *
            config["head_dim"])


# ---------------------------------------------------------------- saving

def gaps_beside_prompts(server, args, seed):
    """The sorted gaps of a stream, and the blocks that were saved beside it."""
    rng = random.Random(seed)
    ended, sent = multiprocessing.Event(), multiprocessing.Value("i")
    begun = time.monotonic()

    def send_prompts():  # at the same times on both servers, unless one cannot keep up
        while not ended.wait(max(0, begun + sent.value * args.interval_ms / 1e3 -
                                 time.monotonic())):
            server.complete(random_prompt(rng, args.prompt), 1)
            sent.value += 1

    saved = server.metric("kv_tier_blocks_saved_total")
    other = multiprocessing.get_context("fork").Process(target=send_prompts)
    other.start()
    _, times, _, _ = server.complete(random_prompt(rng, BLOCK), args.stream)
    ended.set()
    other.join()
    saved = server.metric("kv_tier_blocks_saved_total") - saved
    return sorted(b - a for a, b in zip(times, times[1:])), times[-1] - times[0], saved, \
        sent.value


def gaps_of_streams(server, args, pair):
    """The same of some streams together: in a single one few gaps decide the P99."""
    all_gaps, all_took, all_saved, all_sent = [], 0, 0, 0
    for i in range(args.streams):
        gaps, took, saved, sent = gaps_beside_prompts(server, args, pair * args.streams + i)
        all_gaps += gaps
        all_took, all_saved, all_sent = all_took + took, all_saved + saved, all_sent + sent
    return sorted(all_gaps), all_took, all_saved, all_sent


# Both servers run the same steps: the budget that `serve` learns differs between them.
SAVING = ["--token-budget", "256"]


@contextlib.contextmanager
def server_with_tier(args, memory):
    """A server with a tier, which takes saves."""
    if args.tier == "lent":
        lent = 512 * MIB
        with coordinator(args.binary, args.folder, 0) as (lend, _), \
                Server(args, *lend, "--kv-cache-memory", f"{64 * MIB}-{64 * MIB + lent}",
                       "--lend-pages", str(lent)), \
                Server(args, *SAVING, *lend, "--kv-cache-memory", f"{memory}-{memory}",
                       "--borrow-pages", str(lent)) as server:
            # The loan grows with the need.
            await_metric(server.port, "kv_pages_borrowed_bytes", lambda value: value > 0)
            yield server
        return
    below = []
    if args.tier != "none":
        below = ["--kv-ram", "1GiB"] if args.tier == "ram" else disk_option(args)
    with Server(args, *SAVING, "--kv-cache-memory", memory, *below) as server:
        yield server


def gap_ratios(gaps, base):
    """The median gap and the P99, to those without a tier."""
    at_99 = [sorted(each)[math.ceil(0.99 * len(each)) - 1] for each in (gaps, base)]
    return statistics.median(gaps) / statistics.median(base), at_99[0] / at_99[1]


def show_saving(args):
    print("| pair | whole stream | median gap | P99 of gaps (goal 1.1) | blocks saved in a second "
          "| prompts sent |\n|---|---|---|---|---|---|")
    memory = f"{args.kv_cache_mib}MiB"
    rows, all_gaps, all_base = [], [], []
    with Server(args, *SAVING, "--kv-cache-memory", memory) as without, \
            server_with_tier(args, memory) as tier:
        for server in (without, tier):
            gaps_beside_prompts(server, args, 0)
        for pair in range(args.pairs):
            order = [without, tier] if pair % 2 else [tier, without]
            result = {server: gaps_of_streams(server, args, pair + 1) for server in order}
            gaps, took, saved, sent = result[tier]
            base, base_took, _, base_sent = result[without]
            rows.append((took / base_took, *gap_ratios(gaps, base)))
            all_gaps += gaps
            all_base += base
            print(f"| {pair + 1} | " + " | ".join(f"{ratio:.2f}" for ratio in rows[-1]) +
                  f" | {saved / took:.0f} | {sent}, {base_sent} |", flush=True)
    print("| median | " + " | ".join(medians_of(rows)) + " | | |")
    together = [f"{ratio:.2f}" for ratio in gap_ratios(all_gaps, all_base)]
    print("| the gaps of all pairs together | | " + " | ".join(together) + " | | |")


# ---------------------------------------------------------------- restart

def show_restart(args):
    rng = random.Random(1)
    options = ["--kv-cache-memory", f"{args.kv_cache_mib}MiB", "--max-model-len",
               str(args.tokens + 2 * NEW_TOKENS + 64)]
    disk = disk_option(args)
    chat = random_prompt(rng, args.tokens)
    with Server(args, *options, *disk) as server:
        server.complete(random_prompt(rng, 32), 2)
        begun, times, answer, _ = server.complete(chat, 16)
        all_computed = times[0] - begun
    chat += answer
    print("| round | TTFT, to the bound (goal 1.2) | to that with the disk's median rate | "
          "computing all, to the bound | TTFT, to computing all | disk, share of the bound | "
          "the disk's slowest pass, to its best | cached tokens | read_bytes |\n|---|---|---|---|---|---|---|---|---|")
    rows = []
    for turn in range(args.rounds):
        rates = disk_rates(args.folder, args.tokens * kv_bytes_per_token(args.model))
        drop_from_page_cache(os.path.join(args.folder, "kv"))
        with Server(args, *options, *disk) as server:
            server.complete(random_prompt(rng, 32), 2)  # weights are warm
            read = server.read_bytes()
            begun, times, _, cached = server.complete(chat + random_prompt(rng, NEW_TOKENS), 2)
            ttft, read = times[0] - begun, server.read_bytes() - read
            in_memory = []
            for _ in range(3):
                begun, times, _, _ = server.complete(chat + random_prompt(rng, NEW_TOKENS), 2)
                in_memory.append(times[0] - begun)
        kv = cached * kv_bytes_per_token(args.model)
        # Before and after: the rate of a virtual disk changes from pass to pass.
        rates += disk_rates(args.folder, kv)
        loading = kv / max(rates)
        bound = loading + statistics.median(in_memory)
        median_bound = kv / statistics.median(rates) + statistics.median(in_memory)
        rows.append((ttft / bound, ttft / median_bound, all_computed / bound, ttft / all_computed,
                     loading / bound, min(rates) / max(rates)))
        print(f"| {turn + 1} | " + " | ".join(f"{ratio:.2f}" for ratio in rows[-1]) +
              f" | {cached} | {read / MIB:.0f} of {kv / MIB:.0f} MiB |", flush=True)
    print("| median | " + " | ".join(medians_of(rows)) + " | | |")


# ---------------------------------------------------------------- burst

class MemoryGroup:
    """A control group (version 1) whose memory the kernel swaps beyond a limit. Needs root and a
    swap area."""
    PATH = "/sys/fs/cgroup/memory/sluice-figures"

    def __enter__(self):
        os.makedirs(self.PATH, exist_ok=True)
        return self

    def __exit__(self, *_):
        os.rmdir(self.PATH)

    def write(self, name, value):
        with open(f"{self.PATH}/{name}", "w", encoding="ascii") as stream:
            stream.write(str(value))

    def stat(self):
        with open(f"{self.PATH}/memory.stat", encoding="ascii") as stream:
            return {name: int(value) for name, value in (line.split() for line in stream)}

    def add_self(self):
        self.write("cgroup.procs", os.getpid())

    def take(self, size):
        """Leaves the group's processes so many bytes less than they have now."""
        stat = self.stat()
        self.write("memory.limit_in_bytes", stat["rss"] + stat["mapped_file"] - size)


def at_once(prompts, call):
    clients = [threading.Thread(target=call, args=pair) for pair in enumerate(prompts)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def burst(args, *options, group=None):
    """The worst TTFT, the mean completion and the makespan of one burst, and its answers. With a
    group, the server has KV memory for all, and the kernel swaps what exceeds that for three."""
    rng = random.Random(3)
    prompts = [random_prompt(rng, 64) for _ in range(args.clients)]
    results = [None] * len(prompts)
    length = 64 + args.answers
    blocks = 3 * (math.ceil(length / BLOCK) + 1)
    memory = blocks * BLOCK * kv_bytes_per_token(args.model)
    served = memory * math.ceil(args.clients / 3) if group else memory
    with Server(args, "--kv-cache-memory", f"{served // 1024}KiB", "--max-model-len",
                str(length + BLOCK), *options,
                preexec_fn=group.add_self if group else None) as server:
        server.complete(random_prompt(rng, 32), 2)
        if group:
            # First the KV memory grows to what all need: within the limit it would not.
            at_once([random_prompt(rng, length - 1) for _ in prompts],
                    lambda i, prompt: server.complete(prompt, 1))
            group.take(served - memory)

        def call(i, prompt):
            results[i] = server.complete(prompt, args.answers)

        start = time.monotonic()
        at_once(prompts, call)
        saved, loaded = (server.metric(f"kv_tier_blocks_{kind}_total")
                         for kind in ("saved", "loaded"))
        if group:
            stat = group.stat()
            saved, loaded = stat["swap"] / MIB, stat["pgmajfault"]
    return (max(times[0] for _, times, _, _ in results) - start,
            statistics.mean(times[-1] for _, times, _, _ in results) - start,
            max(times[-1] for _, times, _, _ in results) - start,
            [tokens for _, _, tokens, _ in results], saved, loaded)


def show_burst(args):
    base = burst(args, "--scheduler", "stall-free")
    print(f"stall-free: its worst TTFT is {base[0] / base[2]:.2f} of its makespan")
    print("| fair, pages to | worst TTFT (goal 0.2) | makespan (goal 1.15) | mean completion | "
          "blocks saved, loaded | same tokens |\n|---|---|---|---|---|---|")
    ram = ["--kv-ram", "1GiB"]
    tiers = {"disk": ("--kv-disk", []), "ram": ("--kv-ram", ram), "both": ("both", ram)}
    for tier in [args.tier] if args.tier else tiers:
        name, options = tiers[tier]
        # Each folder is emptied right before its run.
        disk = [] if tier == "ram" else disk_option(args)
        fair = burst(args, "--scheduler", "fair", *options, *disk)
        print(f"| {name} | {fair[0] / base[0]:.2f} | {fair[2] / base[2]:.2f} | "
              f"{fair[1] / base[1]:.2f} | {fair[4]:.0f}, {fair[5]:.0f} | "
              f"{sum(a == b for a, b in zip(fair[3], base[3]))} of {args.clients} |", flush=True)
    if args.kernel_swap:
        with MemoryGroup() as group:
            swapped = burst(args, "--scheduler", "stall-free", group=group)
        print(f"| none: `stall-free`, the kernel swaps | {swapped[0] / base[0]:.2f} | "
              f"{swapped[2] / base[2]:.2f} | {swapped[1] / base[1]:.2f} | {swapped[4]:.0f} MiB, "
              f"{swapped[5]:.0f} faults | "
              f"{sum(a == b for a, b in zip(swapped[3], base[3]))} of {args.clients} |")


# ---------------------------------------------------------------- sharegpt

def lengths_burst(args, memory_tokens, *options):
    """The summary of `bench serve` for one burst, and the blocks that were saved and loaded."""
    memory = memory_tokens * kv_bytes_per_token(args.model)
    with Server(args, "--kv-cache-memory", f"{memory // 1024}KiB", *fair_options(args),
                *options) as server:
        server.complete(random_prompt(random.Random(3), 32), 2)
        output = subprocess.run(
            [args.binary, "bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}",
             *lengths_options(args), "--num-prompts", str(args.clients), "--ignore-eos",
             "--vocab-size", "2900", "--json", "--no-progress"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        saved, loaded = (server.metric(f"kv_tier_blocks_{kind}_total")
                         for kind in ("saved", "loaded"))
    return json.loads(output), f"{saved:.0f}, {loaded:.0f}"


def context_of(args):
    return math.ceil(8192 * args.length_scale / BLOCK) * BLOCK + BLOCK


def lengths_options(args):
    return ["--lengths", "sharegpt", "--length-scale", str(args.length_scale), "--seed", "1"]


def fair_options(args):
    """The same for both. A profile may not reach to the server's usual budget."""
    return ["--scheduler", "fair", "--token-budget", "256", "--max-num-seqs", str(args.clients),
            "--max-model-len", str(context_of(args))]


def simulate_lengths(args, memory_tokens):
    output = subprocess.run(
        [args.binary, "simulate", "--profile", args.profile, *lengths_options(args), "--qps", "inf",
         "--num-requests", str(args.clients), "--kv-tokens", str(memory_tokens),
         *fair_options(args), "--kv-tier", "free", "--json", "--no-progress"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output)


def show_sharegpt(args):
    if not args.profile:
        raise SystemExit("--figure sharegpt needs --profile FILE (sluice profile MODEL --output)")
    small, all_tokens = 2 * context_of(args), args.clients * context_of(args)
    print(f"{args.clients} calls at once, ShareGPT lengths x {args.length_scale}, KV memory of "
          f"{small} tokens, {context_of(args)} at most in a call")
    print("| | mean completion | makespan | mean TTFT | blocks saved, loaded |\n"
          "|---|---|---|---|---|")
    ideal = simulate_lengths(args, small)

    def show(name, summary, paged=""):
        ratios = [summary[key] / ideal[key] for key in ("mean_e2el_ms", "duration", "mean_ttft_ms")]
        print(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) +
              f" | {paged} |", flush=True)

    free = simulate_lengths(args, all_tokens)
    show("simulated: free paging", ideal)
    show("simulated: KV memory for all", free)
    tier = ["--kv-ram", "1GiB"] if args.tier == "ram" else []
    name = "`--kv-ram`" if tier else "`--kv-disk`"
    keys = ("mean_e2el_ms", "duration", "mean_ttft_ms")
    rows, errors = [], []
    for _ in range(args.rounds):
        enough, _ = lengths_burst(args, all_tokens)
        paged, blocks = lengths_burst(args, small, *(tier or disk_option(args)))
        show("KV memory for all", enough)
        show(name, paged, blocks)
        errors.append([enough[key] / free[key] for key in keys])
        rows.append([paged[key] / ideal[key] for key in keys])
    print(f"| median of {name}, to free paging (goal 1.1 for the mean completion) | " +
          " | ".join(medians_of(rows)) + " | |")
    print("| median of KV memory for all, to its simulation: the simulator's error | " +
          " | ".join(medians_of(errors)) + " | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("folder", help="on the disk that is measured")
    parser.add_argument("--figure", required=True,
                        choices=["saving", "restart", "burst", "sharegpt"])
    parser.add_argument("--serve", default="", help="further options of every server")
    parser.add_argument("--kv-cache-mib", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=5, help="saving: of runs")
    parser.add_argument("--tier", choices=["disk", "ram", "both", "lent", "none"],
                        help="saving: disk (the default), ram, lent or none; burst: disk, ram or "
                             "both (default: each); sharegpt: disk (the default) or ram")
    parser.add_argument("--streams", type=int, default=1, help="saving: in a run, one by one")
    parser.add_argument("--stream", type=int, default=1500, help="saving: tokens of the stream")
    parser.add_argument("--prompt", type=int, default=200, help="saving: tokens of a prompt beside")
    parser.add_argument("--interval-ms", type=float, default=20, help="saving: between prompts")
    parser.add_argument("--tokens", type=int, default=4000, help="restart: of the chat")
    parser.add_argument("--rounds", type=int, default=3, help="restart, sharegpt: of runs")
    parser.add_argument("--clients", type=int, default=32, help="burst, sharegpt: at once")
    parser.add_argument("--answers", type=int, default=256, help="burst: tokens of an answer")
    parser.add_argument("--kernel-swap", action="store_true",
                        help="burst: a row in which the kernel swaps; needs root and a swap area")
    parser.add_argument("--length-scale", type=float, default=0.125,
                        help="sharegpt: times the tokens of the distribution")
    parser.add_argument("--profile", help="sharegpt: of this machine and model")
    args = parser.parse_args()
    if (args.figure, args.tier) in (("saving", "both"), ("burst", "lent"), ("burst", "none"),
                                    ("sharegpt", "both"), ("sharegpt", "lent"),
                                    ("sharegpt", "none")):
        parser.error(f"--figure {args.figure} does not measure --tier {args.tier}")
    os.makedirs(args.folder, exist_ok=True)
    os.environ["XDG_STATE_HOME"] = os.path.join(args.folder, "state")
    {"saving": show_saving, "restart": show_restart, "burst": show_burst,
     "sharegpt": show_sharegpt}[args.figure](args)


if __name__ == "__main__":
    main()
