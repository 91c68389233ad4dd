#!/usr/bin/env python3
"""Runs the same calls on a real `sluice gateway` and in `sluice simulate --functions`, and compares
times and bill (docs/serverless.md):

    tools/gateway_simulated.py build/release/apps/sluice models/demo [--functions 4] [--load 0.3]
        [--seconds 30] [--rounds 3] [--prompt 300] [--output 32]

A first gateway measures what the cluster file of the simulator needs: the start of a process, its
memory, and the times of prompts and of tokens. A second one gets the calls: as many as make the
functions compute for `--load` of the time, at random (poisson) or in bursts (bursty). The client
shares the cores with the gateway, in the measurement too.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

from gateway_study import (Call, Config, Gateway, bursty_calls, median_range, percentile, play,
                           poisson, table, weight_bytes)

WARM = ["--warm-workers", "0"]
IDLE_S = 5
SHORT, LONG = 64, 1024  # tokens of the prompts that measure
TOGETHER = 4  # sequences


class Times:
    """The seconds and bytes that one machine takes for a model."""

    def __init__(self, start, memory, prefill, decode):
        self.start, self.memory = start, memory
        self.prefill_step, self.prefill_token = prefill
        self.decode_step, self.decode_sequence = decode

    def of_call(self, prompt, output):
        """Alone on the machine."""
        return (self.prefill_step + self.prefill_token * prompt +
                (output - 1) * (self.decode_step + self.decode_sequence))

    def cluster(self, cores, weights):
        return (f"[machine]\ncores = {cores}\nhost_memory = {1 << 40}\nmax_sequences = 256\n"
                f'[[model]]\nbackbone = "m0"\nmemory = {weights}\n'
                f"instance_memory = {round(self.memory)}\nkernels_s = {self.start:.6f}\n"
                f"prefill_step_s = {self.prefill_step:.9f}\n"
                f"prefill_token_s = {self.prefill_token:.9f}\n"
                f"decode_step_s = {self.decode_step:.9f}\n"
                f"decode_sequence_s = {self.decode_sequence:.9f}\n")


def line(x1, y1, x2, y2):
    """(constant, slope), neither below 0."""
    slope = max(0.0, (y2 - y1) / (x2 - x1))
    return max(0.0, y1 - slope * x1), slope


def token_time(call):
    return (call.e2e - call.ttft) / (call.output - 1)


def memory_of(rows):
    """GB-seconds of all functions."""
    return sum(part for row in rows if row["tenant"] for kind in row["memory_gb_seconds"].values()
               for part in kind.values())


def measure(options, folder):
    functions = options.functions
    config = Config([options.model] * functions, idle_s=600)
    with Gateway(options.sluice, config, [*WARM, "--max-functions", str(functions)],
                 folder) as gateway:
        def run(tenant, prompt, output, count=1):
            calls = [Call(0, tenant, prompt, output) for _ in range(count)]
            play(gateway, calls)
            return calls

        def first_token(prompt):
            return statistics.median(run(i % functions, prompt, 1)[0].ttft for i in range(9))

        cold = [run(tenant, SHORT, 1)[0].ttft for tenant in range(functions)]
        for tenant in range(functions):  # memory grows with use
            run(tenant, options.prompt, options.output, TOGETHER)
        short, long = first_token(SHORT), first_token(LONG)
        alone = statistics.median(token_time(run(0, SHORT, 128)[0]) for _ in range(5))
        together = statistics.median(token_time(call) for _ in range(3)
                                     for call in run(0, SHORT, 128, TOGETHER))
        began, before = time.monotonic(), memory_of(gateway.usage_rows())
        time.sleep(3)
        gb = (memory_of(gateway.usage_rows()) - before) / (time.monotonic() - began)
    own = max(0.0, 1e9 * gb - weight_bytes(options.model)) / functions
    return Times(max(0.0, statistics.median(cold) - short), own, line(SHORT, short, LONG, long),
                 line(1, alone, TOGETHER, together))


def made_calls(options, kind, rate, seed):
    rates = [rate] * options.functions
    if kind == "bursty":
        calls = bursty_calls(rates, options.seconds, seed, options.prompt, options.output)
    else:
        generator = random.Random(seed)
        calls = [Call(due, tenant, options.prompt, options.output)
                 for tenant, one in enumerate(rates)
                 for due in poisson(generator, one, options.seconds)]
    return sorted(calls, key=lambda call: call.due)


def real(options, folder, calls):
    config = Config([options.model] * options.functions, idle_s=IDLE_S)
    with Gateway(options.sluice, config,
                 [*WARM, "--max-functions", str(options.functions)], folder) as gateway:
        answered = play(gateway, calls)
        rows = [row for row in gateway.usage_rows() if row["tenant"]]
    if len(answered) != len(calls):
        raise SystemExit(f"{len(calls) - len(answered)} calls were refused: lower --load")
    ttft = [call.ttft for call in calls]
    return {"TTFT, mean": statistics.mean(ttft), "TTFT, P50": percentile(ttft, 0.5),
            "TTFT, P90": percentile(ttft, 0.9), "TTFT, P99": percentile(ttft, 0.99),
            "E2E, mean": statistics.mean(call.e2e for call in calls),
            "core seconds": sum(row["core_seconds"] for row in rows),
            "GB-seconds": memory_of(rows), "bill": sum(row["cost"] for row in rows)}


def simulated(options, folder, calls, times):
    functions = Config([options.model] * options.functions, idle_s=IDLE_S).write(folder)
    cluster = os.path.join(folder, "cluster.toml")
    with open(cluster, "w", encoding="ascii") as stream:
        stream.write(times.cluster(os.cpu_count(), weight_bytes(options.model)))
    path = os.path.join(folder, "calls.csv")
    with open(path, "w", encoding="ascii") as stream:
        stream.write("seconds,function,prompt_tokens,output_tokens\n")
        for call in calls:
            stream.write(f"{call.due:.6f},t{call.tenant}/m0,{call.prompt},{call.output}\n")
    out = subprocess.run([options.sluice, "simulate", "--functions", functions, "--cluster",
                          cluster, "--calls", path, "--json"], check=True, capture_output=True)
    report = json.loads(out.stdout)[0]
    ttft = report["ttft_s"]
    return {"TTFT, mean": ttft["mean"], "TTFT, P50": ttft["p50"], "TTFT, P90": ttft["p90"],
            "TTFT, P99": ttft["p99"], "E2E, mean": report["e2e_s"]["mean"],
            "core seconds": report["core_seconds"], "GB-seconds": report["memory_gb_seconds"],
            "bill": report["cost"]}


def compare(options, kind, times, folder):
    rate = options.load / options.functions / times.of_call(options.prompt, options.output)
    ratios = {}
    for number in range(options.rounds):
        calls = made_calls(options, kind, rate, number)
        theirs = real(options, folder, calls)
        ours = simulated(options, folder, calls, times)
        for name, value in theirs.items():
            ratios.setdefault(name, []).append(ours[name] / value)
    table(f"**{kind}**: {options.functions} functions, {rate:.2f} calls/s of each, prompts of "
          f"{options.prompt} tokens, answers of {options.output}; {options.rounds} rounds of "
          f"{options.seconds:g} s", ("", "simulated to real (goal: 0.85 to 1.15)"),
          [(name, median_range(values, "{:.2f}")) for name, values in ratios.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("--functions", type=int, default=4)
    parser.add_argument("--load", type=float, default=0.3, help="part of the time that is computed")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=300)
    parser.add_argument("--output", type=int, default=32)
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    with tempfile.TemporaryDirectory() as folder:
        times = measure(options, folder)
        print("measured: " + times.cluster(os.cpu_count(), weight_bytes(options.model))
              .split("[[model]]")[1].replace("\n", "; ").strip("; "), flush=True)
        for kind in ("poisson", "bursty"):
            compare(options, kind, times, folder)


if __name__ == "__main__":
    main()
