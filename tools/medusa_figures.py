#!/usr/bin/env python3
"""Figures 10 and 11 of Medusa (https://doi.org/10.1145/3669940.3707285) by `sluice simulate`,
beside the paper's own numbers, as Markdown for docs/snapshots.md.

    tools/medusa_figures.py build/release/apps/sluice [--page docs/snapshots.md] [--seeds 5]

--page writes the tables between the markers of the page. It takes half a minute on one core.
"""

import argparse
import bisect
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- figures of tools/medusa_figures.py -->", "<!-- end of Medusa's figures -->"

# The artifact: github.com/thustorage/Medusa, commit 2da5213. scripts/scheduler.py: 4 GPUs, 16
# requests an instance; an instance without requests ends. A process is there already, so a start
# is the loading phase.
GPUS, ROOM, MAX_LENGTH = 4, 16, 2048
# Quantiles of its 605 requests at 10 requests/s (experiments-backup/traces/qps10/Llama-7B_sync).
QUANTILES = (0, 0.5, 0.9, 1)
PROMPTS, OUTPUTS = (1, 32, 543, 1627), (1, 285, 753, 1647)

# Milliseconds from "Overall total time" in experiments-backup/overall. The initialization of the
# runtime is in them: 3,531 for Qwen1.5 4B, of which figure 8 has 2,850 in the loading phase.
RUNTIME_MS = 3531.2 - 2850
TOTAL_MS = {
    "llama-7b": {"vLLM": 4134.3, "vLLM + ASYNC": 3582.5, "w/o CUDA graph": 3264.5,
                 "Medusa": 2390.7},
    "qwen1.5-4b": {"vLLM": 3531.2, "vLLM + ASYNC": 3402.1, "w/o CUDA graph": 2925.2,
                   "Medusa": 2280.1},
}
# Figure 8: 7.4 GB of weights in 0.39 s; weights of llama-7b have 13.5 GB. A start of this engine
# has 30 ms beside its weights on a CPU (docs/snapshots.md).
OURS_MS = {"qwen1.5-4b": 390 + 30, "llama-7b": 390 * 13.5 / 7.4 + 30}
OURS = "Sluice, assumed"

# 99th percentiles of TTFT in seconds: those of vLLM and vLLM + ASYNC from the artifact's
# experiments-backup; those of Medusa from section 7.5: 50.5 % and 53.0 % less than vLLM's.
PAPER_10 = {
    ("llama-7b", 2): {"vLLM": 3.16, "vLLM + ASYNC": 2.51, "Medusa": 3.16 * (1 - 0.505)},
    ("llama-7b", 10): {"vLLM": 3.48, "vLLM + ASYNC": 2.72, "Medusa": 3.48 * (1 - 0.530)},
    ("qwen1.5-4b", 2): {"vLLM": 2.16, "vLLM + ASYNC": 1.78},
    ("qwen1.5-4b", 10): {"vLLM": 2.91, "vLLM + ASYNC": 2.13},
}
# By requests/s: (throughput, 99th percentile) of vLLM and of vLLM + ASYNC, traces_throughput.
PAPER_11 = {
    "llama-7b": {1: (0.84, 1.47, 0.92), 2: (1.72, 3.32, 2.52), 5: (3.72, 3.30, 2.40),
                 6: (4.52, 3.32, 2.53), 7: (5.85, 3.33, 2.50), 8: (5.94, 3.34, 2.50),
                 9: (6.40, 3.34, 2.48)},
    "qwen1.5-4b": {1: (0.86, 0.98, 0.64), 2: (1.81, 2.12, 1.80), 5: (4.11, 2.82, 2.02),
                   6: (5.10, 2.88, 2.06), 7: (6.38, 2.58, 2.14), 8: (6.50, 2.88, 2.19),
                   9: (7.52, 2.85, 1.98)},
}


def start_seconds(model):
    starts = {name: (total - RUNTIME_MS) / 1e3 for name, total in TOTAL_MS[model].items()}
    return {**starts, OURS: OURS_MS[model] / 1e3}


def draw(values, share):
    """The quantile at `share`, between those that are known in equal ratios."""
    i = min(bisect.bisect_right(QUANTILES, share), len(QUANTILES) - 1)
    part = (share - QUANTILES[i - 1]) / (QUANTILES[i] - QUANTILES[i - 1])
    low, high = math.log(values[i - 1]), math.log(values[i])
    return max(1, round(math.exp(low + part * (high - low))))


def write_lengths(path, count=2000):
    chance = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        file.write("num_prefill_tokens,num_decode_tokens\n")
        while count > 0:
            pair = draw(PROMPTS, chance.random()), draw(OUTPUTS, chance.random())
            if sum(pair) < MAX_LENGTH:
                file.write("{},{}\n".format(*pair))
                count -= 1


class Study:
    def __init__(self, sluice, lengths, seeds):
        self.sluice, self.lengths, self.seeds = sluice, lengths, range(1, seeds + 1)

    def run(self, model, qps, start):
        """Medians over the seeds: throughput, P99 TTFT in seconds, starts."""
        count = round(qps * (120 if qps == 1 else 60))  # scripts/traces.py
        results = []
        for seed in self.seeds:
            call = [self.sluice, "simulate", "--gpu", "a100-40g", "--model", model,
                    "--scheduler", "prefill-first", "--max-model-len", str(MAX_LENGTH),
                    "--lengths", self.lengths, "--qps", str(qps), "--num-requests", str(count),
                    "--instances", f"{GPUS},{ROOM},{start:.3f}", "--seed", str(seed),
                    "--no-progress", "--json"]
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(call)}: {done.stderr.strip()}")
            summary = json.loads(done.stdout)
            results.append((summary["request_throughput"], summary["p99_ttft_ms"] / 1e3,
                            summary["instance_starts"]))
        return [statistics.median(values) for values in zip(*results)]


def beside(ours, paper):
    return f"{ours:.2f}" if paper is None else f"{ours:.2f} ({paper:.2f})"


def table(head, rows):
    return ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(row) + " |" for row in rows)]


def figure_10(study):
    systems = list(start_seconds("llama-7b"))
    rows = []
    for (model, qps), paper in PAPER_10.items():
        found = {name: study.run(model, qps, start)[1]
                 for name, start in start_seconds(model).items()}
        rows.append([f"{model}, {qps} requests/s",
                     *(beside(found[name], paper.get(name)) for name in systems),
                     f"{100 - 100 * found['Medusa'] / found['vLLM']:.0f} %"])
    return table(["P99 of TTFT, s", *systems, "Medusa, less than vLLM"], rows)


def figure_11(study):
    lines = []
    for model, points in PAPER_11.items():
        starts = start_seconds(model)
        rows = []
        for qps, (throughput, sync, asynchronous) in points.items():
            found = {name: study.run(model, qps, start) for name, start in starts.items()}
            paper = {"vLLM": sync, "vLLM + ASYNC": asynchronous}
            rows.append([str(qps), beside(found["vLLM"][0], throughput),
                         f"{found['vLLM'][2]:.0f}",
                         *(beside(found[name][1], paper.get(name)) for name in starts)])
        lines += table([f"{model}: requests/s", "throughput of vLLM", "its starts",
                        *(f"{name}: P99 of TTFT, s" for name in starts)], rows)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("--page")
    parser.add_argument("--seeds", type=int, default=5)
    a = parser.parse_args()
    starts = table(["a start takes, s", *start_seconds("llama-7b")],
                   [[model, *(f"{s:.2f}" for s in start_seconds(model).values())]
                    for model in TOTAL_MS])
    with tempfile.TemporaryDirectory() as folder:
        lengths = os.path.join(folder, "lengths.csv")
        write_lengths(lengths)
        study = Study(a.sluice, lengths, a.seeds)
        lines = [*starts, "", "**Figure 10**", *figure_10(study), "", "**Figure 11**",
                 *figure_11(study), ""]
    text = "\n".join(lines)
    if a.page is None:
        print(text)
        return
    with open(a.page, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(a.page, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + text + "\n" + END + after)


if __name__ == "__main__":
    main()
