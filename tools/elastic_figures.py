#!/usr/bin/env python3
"""Aqua's evaluation (arXiv 2407.21255: figures 1, 3, 4, 7 to 13 and table 1) by `sluice simulate`
and `sluice profile`, beside the paper's own numbers, as Markdown for docs/elastic-memory.md.

    tools/elastic_figures.py build/release/apps/sluice [--page docs/elastic-memory.md] [--seeds 10]
        [--real models/demo]

--page writes the tables between the markers of the page, and pictures of them into images/ beside
it (elastic_pictures.py). --real also runs figure 12 with a coordinator and two servers of that
model on this machine; without it the page says "not measured".
Everything simulated takes about a minute on one core. The choices here are the paper's where the
paper states them; the simulator's constants are its own (docs/simulator.md), and none is set here.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

import elastic_pictures
import elastic_real

GB = 1e9
BEGIN, END = "<!-- figures of tools/elastic_figures.py -->", "<!-- end of figures -->"
TTFT_MS, TBT_MS = 1000, 100  # section 4.1
PREFIX_PIECES, PIECE = 195, 512  # 99,840 tokens of a document
HBM_SHARE = 0.8  # of the data sheet's bandwidth, as the simulator has it


class Study:
    def __init__(self, sluice, seeds):
        self.sluice = sluice
        self.seeds = range(1, seeds + 1)
        self.lines = []
        self.runs = 0

    def run(self, command, *arguments):
        self.runs += 1
        call = [self.sluice, command, *map(str, arguments), "--json", "--host-stack", "python"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(call)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def simulate(self, *arguments):
        return self.run("simulate", "--no-progress", "--metric-percentiles", "50,95,99,100",
                        *arguments)

    def profile(self, model, *arguments):
        return self.run("profile", model, *arguments)["memory"]

    def objective(self, ttft_ms=TTFT_MS, tbt_ms=TBT_MS):
        return ("--slo-ttft-ms", ttft_ms, "--ttft-percentile", 50, "--slo-tbt-ms", tbt_ms)

    def say(self, *text):
        self.lines += ["", *text]

    def table(self, title, heads, rows, command=""):
        self.say(title, "")
        self.lines.append("| " + " | ".join(heads) + " |")
        self.lines.append("|" + "---|" * len(heads))
        self.lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        if command:
            self.say(f"`{command}`")


def number(value, digits=1):
    return f"{value:,.{digits}f}"


# ---------------------------------------------------------------- bursts: figures 1, 8 and 13

TIER = ("--kv-tier-tokens", 4_000_000)
SYSTEMS = {  # arguments; {rate} is the stable one
    "first come (`stall-free`)": ("--scheduler", "stall-free"),
    "`vtc`": ("--scheduler", "vtc"),
    "`fair`, computes again": ("--scheduler", "fair"),
    "`fair` over PCIe": ("--scheduler", "fair", "--kv-tier", "pcie", *TIER),
    "`fair` over NVLink": ("--scheduler", "fair", "--kv-tier", "nvlink", *TIER),
    "`fair`, paging takes no time": ("--scheduler", "fair", "--kv-tier", "free", *TIER),
    "first come, a machine more after 60 s": ("--scheduler", "stall-free", "--autoscale",
                                              "{rate},5,60"),
    "first come, a machine more after 5 s": ("--scheduler", "stall-free", "--autoscale",
                                             "{rate},5,5"),
    "`fair` over NVLink, a machine more after 60 s": ("--scheduler", "fair", "--kv-tier",
                                                      "nvlink", *TIER, "--autoscale",
                                                      "{rate},5,60"),
}
FIRST, PCIE, NVLINK, FREE = (list(SYSTEMS)[i] for i in (0, 3, 4, 5))


def burst(study, machine, lengths, times):
    """The stable rate of the machine, and each system's figures as means over the seeds."""
    machine = (*machine, "--lengths", lengths, "--max-model-len", 8192)
    rate = study.simulate(*machine, "--capacity", "--tbt-slo-ms", 1000,
                          "--num-requests", 400)["capacity_request_rate"]
    steps = f"{rate:.4f}x60,{times * rate:.4f}x60,{rate:.4f}x120"
    found = {}
    for system, arguments in SYSTEMS.items():
        runs = [study.simulate(*machine, "--rate-steps", steps, "--burstiness", 20, "--seed", seed,
                               *(str(a).format(rate=f"{rate:.4f}") for a in arguments))
                for seed in study.seeds]
        found[system] = {key: statistics.mean(run[key] for run in runs) for key in
                         ("mean_ttft_ms", "p100_ttft_ms", "mean_e2el_ms", "mean_tpot_ms",
                          "duration", "completed")}
        found[system]["gb_per_s"] = statistics.mean(
            (run["tier_saved_blocks"] + run["tier_loaded_blocks"]) * run["kv_block_bytes"] /
            run["duration"] / GB for run in runs)
    return rate, found


def burst_table(study, title, machine, lengths, times):
    rate, found = burst(study, machine, lengths, times)
    first = found[FIRST]
    rows = []
    for system, one in found.items():
        rows.append((system, number(one["mean_ttft_ms"] / 1e3), number(one["p100_ttft_ms"] / 1e3),
                     f"{first['p100_ttft_ms'] / one['p100_ttft_ms']:.1f}",
                     number(one["mean_tpot_ms"], 0), number(one["mean_e2el_ms"] / 1e3),
                     number(one["duration"], 0)))
    study.table(f"{title}. {rate:.3f} requests per second, {times} times as many in the second "
                f"minute, {first['completed']:.0f} requests; means of {len(study.seeds)} seeds",
                ("system", "mean TTFT, s", "peak TTFT, s", "first come's peak to this one's",
                 "TPOT, ms", "mean answer, s", "all done, s"), rows,
                " ".join(map(str, ("sluice simulate", *machine, "--lengths", lengths,
                                   f"--rate-steps {rate:.4f}x60,{times * rate:.4f}x60,"
                                   f"{rate:.4f}x120 --burstiness 20 --max-model-len 8192",
                                   "--host-stack python --seed 1", *SYSTEMS[NVLINK]))))
    return found


def bursts(study):
    yi = burst_table(study, "**Figure 1: a burst on an A100**, Yi-34B, `sharegpt` (the paper names "
                     "no model; its TTFT rises 4 times in first come, and `fair` over PCIe answers "
                     "later)", ("--gpu", "a100-80g", "--model", "yi-34b"), "sharegpt", 2)
    llama = burst_table(study, "**Figure 8: a burst on two H100**, Llama-3-70B, `sharegpt` (the "
                        "paper: first come has a peak TTFT of 20 s; Aqua improves TTFT 20 times)",
                        ("--gpu", "h100", "--model", "llama-3-70b", "--tp", 2), "sharegpt", 2)
    arxiv = burst_table(study, "**Figure 13: long prompts**, Yi-34B on an A100, `arxiv` up to "
                               "8,192 "
                        "tokens, three times the rate (the paper: Aqua's peak TTFT and TPOT are "
                        "lower; "
                        "our copy of it lacks the factors)",
                        ("--gpu", "a100-80g", "--model", "yi-34b"), "arxiv", 3)
    study.say(
        "First come and `vtc` are equal, because each request of a burst is a client of its own, "
        "as in",
        "the paper. PCIe and NVLink differ less than in the paper: a block is saved once and "
        "moves beside",
        "the compute, and on a slow link turns get longer, so that paging takes at most a tenth. A",
        "machine that is ready after 60 s comes when the burst is over: it shortens the queue, "
        "not the peak.",
        "The goal of 10 is met where memory is what lacks. With Yi-34B on an A100 compute lacks "
        "as well: the",
        "longest prompts alone take 3 s there. Nothing here has the cost of Aqua's gather",
        "and scatter, and no other program uses the links.")
    return {"A100, Yi-34B": yi, "H100, Llama-3-70B": llama, "A100, `arxiv`": arxiv}


# ------------------------------------------------------------- profiles: figures 3, 4, 7, table 1

def profiles(study):
    study.say("**Figures 3 and 7a: images and audio**: not measured; this engine has no such "
              "models. Batches",
              "of a language model show the same method:")
    grown = study.profile("llama-3-8b", "--gpu", "h100", "--fixed-batches", "--lengths",
                          "fixed:512,256", "--max-num-seqs", 1024)
    study.table("Llama-3-8B on an H100, equal requests of 512 and 256 tokens",
                ("batch", "tokens/s", "KV in use, GB", "KV free, GB"),
                [(step["batch"], number(step["output_throughput"], 0),
                  number(step["kv_in_use_gb"]), number(step["kv_free_gb"]))
                 for step in grown["batches"]],
                "sluice profile llama-3-8b --gpu h100 --fixed-batches --lengths fixed:512,256 "
                "--max-num-seqs 1024 --host-stack python")
    rows = []
    for gpu, paper in (("a100-80g", "2.5 requests/s, 40 GB"), ("h100", "5 requests/s")):
        one = study.profile("llama-3-8b", "--gpu", gpu, *study.objective())
        failed = min(p["request_rate"] for p in one["probes"] if not p["met"])
        above = next(p for p in one["probes"] if p["request_rate"] == failed)
        rows.append((gpu, f"{one['capacity_request_rate']:.2f}",
                     number(one["kv_gb"] - one["kv_in_use_gb"]),
                     f"{failed:.2f}: {number(above['ttft_ms'] / 1e3)} s, "
                     f"{above['p99_itl_ms']:.0f} ms", paper))
    study.table("**Figures 4 and 7b: the largest rate of Llama-3-8B** with a TTFT of 1 s and a "
                "P99 TBT of "
                "100 ms, token budget 512, `sharegpt`",
                ("GPU", "requests/s", "KV free at the peak, GB", "the next rate: TTFT, TBT",
                 "the paper's"), rows,
                "sluice profile llama-3-8b --gpu h100 --slo-ttft-ms 1000 --ttft-percentile 50 "
                "--slo-tbt-ms 100 --host-stack python")
    study.say(
        "The paper's TTFT is taken as the median. With P99, long prompts alone exceed 1 s on an "
        "A100. The",
        "free memory is counted at the peak and with blocks that are promised; the paper's is "
        "not defined.")


CLASSES = [  # table 1: name, arguments, the paper's type
    ("Llama-3-70B, `sharegpt`", "llama-3-70b", ("--gpu", "h100", "--tp", 2), "consumer"),
    ("Yi-34B, `sharegpt`, 100k prefix", "yi-34b", ("--gpu", "h100", "--tp", 2), "consumer"),
    ("OPT-30B, 8k prompts", "opt-30b",
     ("--gpu", "h100", "--max-model-len", 8512, "--lengths", "fixed:8192,256"), "consumer"),
    ("Llama-3-8B, `sharegpt`", "llama-3-8b", ("--gpu", "h100"), "producer"),
    ("Llama-3-70B, `sharegpt`", "llama-3-70b", ("--gpu", "h100", "--tp", 4), "producer"),
]


def classification(study):
    rows = []
    for name, model, arguments, paper in CLASSES:
        one = study.profile(model, *arguments, *study.objective())
        place = one["placement"]
        kind = f"{one['kind']}, {place['memory_gb']:+.1f} GB"
        if "prefix" in name:
            swap = PREFIX_PIECES * PIECE * prefix_bytes(study) / GB
            kind += f"; the prefix needs {swap:.1f} GB"
        bursts_gb = ", ".join(number(b["swap_gb"]) for b in one["bursts"])
        rows.append((name, place["tensor_parallel"], f"{one['capacity_request_rate']:.2f}", kind,
                     bursts_gb, paper))
    rows.append(("SD-3, SD-XL, Kandinsky, MusicGen, AudioGen", 1, "", "not measured", "",
                 "producer"))
    study.table("**Table 1: what the profiler says on H100**, GB of each GPU (Llama 3 has the "
                "shape of 3.1)",
                ("model", "GPUs", "requests/s", "ours", "swap in bursts of 2 and 3 times, GB",
                 "the paper's"), rows)
    arxiv = study.profile("yi-34b", "--gpu", "a100-80g", "--lengths", "arxiv", "--max-model-len",
                          8192, *study.objective(ttft_ms=5000))
    needs = ", ".join(f"{b['times']:g} times: {b['swap_gb']:.1f} GB" for b in arxiv["bursts"])
    study.say(
        f"Yi-34B on an A100 with `arxiv` (section 9.4), at {arxiv['capacity_request_rate']:.3f} "
        f"requests per",
        f"second with a TTFT of 5 s: {needs}. The paper's bursts, whose factors our copy lacks, "
        f"need 6, 15 and",
        "40 GB. Its contexts are longer; with 16,384 tokens the model does not fit into the "
        "simulated A100.",
        "A Yi-34B without the prefix has nothing to lend and nothing to page here. The prefix "
        "makes it a",
        "consumer, as in the paper; the profiler does not know prefixes, so the operator adds "
        "them.")


def prefix_bytes(study):
    """KV bytes of a token on one of two GPUs."""
    one = study.simulate("--gpu", "h100", "--model", "yi-34b", "--tp", 2, "--qps", 1,
                         "--num-requests", 1, "--lengths", "fixed:16,1")
    return one["kv_block_bytes"] / 16


# ---------------------------------------------------------------- figure 9a: long prefixes

def write_prefix_trace(path, documents, rate, others, seed):
    """Requests of the paper: a tenth has a document of 100k tokens and 256 new ones. Each document
    is computed once before the measured part."""
    rnd = random.Random(seed)
    clock = 0.0
    with open(path, "w", encoding="ascii") as out:
        for i in range(documents + 300):
            first = i < documents
            if first or not others or rnd.random() < 0.1:
                document = i if first else rnd.randrange(documents)
                request = (PREFIX_PIECES * PIECE + 256, 128,
                           [1000 * document + piece for piece in range(PREFIX_PIECES)])
            else:
                request = (min(7000, max(8, int(rnd.lognormvariate(7.2, 0.8)))),
                           min(1000, max(4, int(rnd.lognormvariate(5.9, 0.5)))), [])
            out.write(json.dumps({"timestamp": round(clock * 1000), "input_length": request[0],
                                  "output_length": request[1], "hash_ids": request[2]}) + "\n")
            clock += 30 if first else rnd.expovariate(rate)


def prefixes(study, folder):
    rows = []
    machine = ("--gpu", "h100", "--model", "yi-34b", "--tp", 2, "--max-model-len", 102400)
    for documents, rate, others in ((1, 1.0, True), (4, 1.0, True), (4, 0.2, False)):
        path = os.path.join(folder, "prefix.jsonl")
        write_prefix_trace(path, documents, rate, others, seed=1)
        for name, tier in (("none", ()), ("PCIe", ("--kv-tier", "pcie")),
                           ("NVLink", ("--kv-tier", "nvlink")), ("no time", ("--kv-tier", "free"))):
            one = study.simulate(*machine, "--trace", path, *tier)
            rows.append((documents, f"{rate:g}", "a tenth" if others else "all", name,
                         *(number(one[f"p{p}_ttft_ms"] / 1e3, 2) for p in (50, 95)),
                         number(one["tier_loaded_blocks"] * one["kv_block_bytes"] / GB, 0)))
    study.table("**Figure 9a: prefixes of 100k tokens**, Yi-34B on two H100 (the paper: TTFT "
                "spikes of 4 s "
                "over PCIe on each hit; the context takes 10 s to compute)",
                ("documents", "requests/s", "with a document", "tier", "median TTFT, s",
                 "P95 TTFT, s", "loaded by each GPU, GB"), rows,
                "sluice simulate --gpu h100 --model yi-34b --tp 2 --max-model-len 102400 --trace "
                "FILE "
                "--kv-tier nvlink")
    study.say(
        "A document that memory can keep is never paged here. Memory keeps three documents of "
        "four, and a tier",
        "spares the computation of the fourth. A hit over PCIe waits a third of a second, not 4 "
        "s: all layers' blocks",
        "of a plan are one copy, and other requests are planned meanwhile. So NVLink gains less "
        "than in the",
        "paper. The lengths of the other requests are drawn from a log-normal distribution, as "
        "those of chats.")


# ---------------------------------------------------------------- figure 9b: a long prompt

def long_prompts(study):
    rows = []
    rates = {}
    machine = ("--gpu", "h100", "--model", "opt-30b", "--max-model-len", 8512, "--lengths",
               "fixed:8192,256", "--qps", "inf", "--kv-tier-tokens", 200_000)
    for way, option in (("read for every token", ("--kv-stream",)),
                        ("turns of 32 tokens", ("--scheduler", "fair", "--kv-tier"))):
        for count in (1, 4):
            cells = []
            for link in ("pcie", "nvlink", "free"):
                one = study.simulate(*machine, "--num-requests", count, *option, link)
                rates[way, count, link] = one["output_throughput"]
                cells.append(number(one["output_throughput"]))
            gain = rates[way, count, "nvlink"] / rates[way, count, "pcie"]
            rows.append((way, count, *cells, f"{gain:.1f}"))
    study.table("**Figure 9b: prompts of 8,192 tokens**, OPT-30B on an H100, tokens/s (the "
                "paper: 4 times PCIe)",
                ("contexts", "prompts", "PCIe", "NVLink", "paging takes no time",
                 "NVLink to PCIe"), rows,
                "sluice simulate --gpu h100 --model opt-30b --max-model-len 8512 --lengths "
                "fixed:8192,256 "
                "--qps inf --num-requests 4 --kv-stream nvlink")
    study.say(
        "The first two rows are FlexGen's way: a context lies below memory and is read again, "
        "layer by layer,",
        "for every token. This engine never works so: sequences take turns, and a context is "
        "read once a turn.",
        "Then the link hardly matters. FlexGen's own cost beside the copies is not in the "
        "simulation, which may be",
        "why the gain exceeds the paper's.")
    return rates["read for every token", 1, "nvlink"] / rates["read for every token", 1, "pcie"]


# ---------------------------------------------------------------- figures 10 and 11: the producers

def producers(study, found):
    rows = []
    machine = study.run("simulate", "--list")
    bandwidth = {gpu["name"]: gpu["bandwidth_gb_per_s"] for gpu in machine["gpus"]}
    for name, gpu in (("A100, Yi-34B", "a100-80g"), ("H100, Llama-3-70B", "h100")):
        moved = found[name][NVLINK]["gb_per_s"]
        rows.append((f"burst: {name}", number(moved, 2),
                     f"{100 * moved / (HBM_SHARE * bandwidth[gpu]):.2f} %"))
    one = study.simulate("--gpu", "h100", "--model", "opt-30b", "--max-model-len", 8512,
                         "--lengths", "fixed:8192,256", "--qps", "inf", "--num-requests", 4,
                         "--kv-tier-tokens",
                         200_000, "--kv-stream", "nvlink")
    token_bytes = one["kv_block_bytes"] / 16
    moved = one["output_throughput"] * 8320 * token_bytes / GB
    rows.append(("OPT-30B, read for every token", number(moved, 0),
                 f"{100 * moved / (HBM_SHARE * bandwidth['h100']):.1f} %"))
    study.table("**Figures 10 and 11: the producer**, a bound: the bytes that a consumer moves "
                "over NVLink, as a part of the memory bandwidth that the producer loses at most",
                ("consumer", "GB/s, mean", "of the producer's memory bandwidth"), rows)
    traffic = {"burst": found["H100, Llama-3-70B"][NVLINK]["gb_per_s"], "OPT-30B": moved}
    rows = [producer_row(study, traffic, *producer) for producer in PRODUCERS]
    study.table("The producer's TPOT in the simulator, in ms, while a consumer moves as much all "
                "the time (`--lent-traffic`; `sharegpt`, means of three seeds)",
                ("producer", "requests per second", "alone", "beside the burst", "beside OPT-30B",
                 "the paper"), rows, "sluice simulate --gpu h100 --model llama-3-70b --tp 4 "
                "--lengths sharegpt --qps 2.5 --num-requests 200 --host-stack python --seed 1 "
                f"--lent-traffic {moved:.0f}")
    study.say(
        "The paper: below 5 % of throughput for audio, nothing for images. Audio and images are not "
        "measured: this engine has no such models.")


PRODUCERS = (
    ("Llama-3.1-8B, one H100 (figure 10)", 5, "4.5 ms more", ("--model", "llama-3-8b")),
    ("Llama-3-70B on four H100 (figure 11)", 2.5, "5 % more",
     ("--model", "llama-3-70b", "--tp", 4)),
)


def producer_row(study, traffic, name, rate, paper, model):
    def tpot(gb_per_s):
        lent = ("--lent-traffic", f"{gb_per_s:.2f}") if gb_per_s > 0 else ()
        return statistics.mean(
            study.simulate("--gpu", "h100", *model, "--lengths", "sharegpt", "--qps", rate,
                           "--num-requests", 200, "--seed", seed, *lent)["mean_tpot_ms"]
            for seed in (1, 2, 3))
    alone = tpot(0)
    beside = [tpot(gb_per_s) for gb_per_s in traffic.values()]
    return (name, rate, number(alone, 2),
            *(f"{number(one, 2)} ({100 * (one / alone - 1):+.1f} %)" for one in beside), paper)


# ---------------------------------------------------------------- figure 12: elasticity

def streamed_on_a100(study):
    rows = []
    for link in ("pcie", "nvlink"):
        one = study.simulate("--gpu", "a100-80g", "--model", "opt-30b", "--max-model-len", 8512,
                             "--lengths", "fixed:8192,256", "--qps", "inf", "--num-requests", 1,
                             "--kv-tier-tokens", 200_000, "--kv-stream", link)
        rows.append(({"pcie": "PCIe", "nvlink": "NVLink"}[link], number(one["output_throughput"])))
    study.table("**Figure 12: the consumer**, OPT-30B on an A100, one prompt of 8,192 tokens "
                "read for every token "
                "(the paper: 8 tokens/s with the producer's memory)", ("its memory is behind",
                                                                      "tokens/s"), rows)


def elasticity(study, model, folder):
    """The table, and its picture."""
    found = elastic_real.measure(study.sluice, model, folder)
    study.table("**Figure 12, real, small: memory follows the load.** Two `serve --lend` of the "
                f"demo model with {found.whole_mib} MiB together on two cores that other programs "
                "used as well; bursts of 120 clients on one and then on the other, whose memory "
                "the first must give back",
                ("burst", "on server", "seconds until it has more than half", "its limit, MiB",
                 "the other's limit, MiB"),
                [(i + 1, one.server, "not within 60 s" if one.took is None else f"{one.took:.2f}",
                  number(one.limit_mib, 0), number(one.other_mib, 0))
                 for i, one in enumerate(found.bursts)])
    study.say("![KV limits of two servers over three bursts](images/elastic-limits.svg)")
    study.say("`tools/elastic_figures.py build/release/apps/sluice --real models/demo`")
    return elastic_pictures.limits_picture(found.samples, [(one.begin, one.end, one.server)
                                                           for one in found.bursts],
                                           found.whole_mib)


# ---------------------------------------------------------------- all of it

def goals(study, found, long_gain):
    peak = max((one[FIRST]["p100_ttft_ms"] / one[NVLINK]["p100_ttft_ms"], name)
               for name, one in found.items())
    least = min(one[FIRST]["p100_ttft_ms"] / one[NVLINK]["p100_ttft_ms"] for one in found.values())
    worst = max((one[NVLINK]["mean_e2el_ms"] / one[FREE]["mean_e2el_ms"], name)
                for name, one in found.items())
    pcie = max(one[PCIE]["mean_e2el_ms"] / one[FREE]["mean_e2el_ms"] for one in found.values())
    study.table("**Goals, simulated**", ("what", "goal", "ours", "the paper's"),
                [("peak TTFT of a burst, first come's to `fair` over NVLink", "10",
                  f"{peak[0]:.1f} ({peak[1]}); at least {least:.1f}", "20"),
                 ("mean answer over NVLink to paging that takes no time, worst burst", "1.1",
                  f"{worst[0]:.2f} ({worst[1]}); over PCIe {pcie:.2f}", ""),
                 ("long prompt, NVLink to PCIe", "3",
                  f"{long_gain:.1f} in FlexGen's way; see figure 9b", "4")])


def write_page(path, lines):
    with open(path, encoding="utf-8") as page:
        text = page.read()
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    with open(path, "w", encoding="utf-8") as page:
        page.write(text[:before] + "\n" + "\n".join(lines) + "\n\n" + text[after:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("--page")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--real", metavar="MODEL")
    options = parser.parse_args()
    study = Study(os.path.abspath(options.sluice), options.seeds)
    with tempfile.TemporaryDirectory() as folder:
        found = bursts(study)
        profiles(study)
        classification(study)
        prefixes(study, folder)
        long_gain = long_prompts(study)
        producers(study, found)
        streamed_on_a100(study)
        limits = None
        if options.real:
            limits = elasticity(study, options.real, folder)
        else:
            study.say("**Figure 12, real**: not measured; `--real MODEL` does it.")
        details, study.lines = study.lines, []
        goals(study, found, long_gain)
        study.say("![Peak TTFT of bursts by system](images/elastic-burst.svg)")
    lines = study.lines + details
    if options.page:
        write_page(options.page, lines)
        images = os.path.join(os.path.dirname(os.path.abspath(options.page)), "images")
        elastic_pictures.write_pictures(options.page, images)
        if limits:
            elastic_pictures.write_picture(images, "elastic-limits.svg", limits)
    else:
        print("\n".join(lines))
    print(f"{study.runs} simulations and profiles", file=sys.stderr)


if __name__ == "__main__":
    main()
