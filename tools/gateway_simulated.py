#!/usr/bin/env python3
"""Runs the same calls on a real `sluice gateway` and in `sluice simulate --functions`, and compares
times and bill (docs/serverless-simulation.md):

    tools/gateway_simulated.py build/release/apps/sluice models/demo [--functions 4] [--load 0.3]
        [--seconds 30] [--rounds 3] [--prompt 300] [--output 32] [--record FILE]
    tools/gateway_simulated.py build/release/apps/sluice models/demo --replay FILE [--cluster FILE]

A gateway measures what the cluster file of the simulator needs, with calls of other lengths than
those of the comparison: the start of a process, its memory, the turns of prompts and of tokens, and
the time and the CPU time of a call outside of turns. KV of a token follows from the model's
configuration. Another gateway gets the calls: as many as make the functions compute for `--load` of
the time, at random (poisson) or in bursts (bursty). The client shares the cores with the gateway,
in the measurement too. The speed of a machine may change within minutes, so each round of calls
lies between two measurements, and its simulation has their means. The tool prints the means of all.
"""

import argparse
import asyncio
import functools
import glob
import json
import operator
import os
import random
import re
import statistics
import subprocess
import tempfile
import time

from gateway_study import (Call, Config, Gateway, bursty_calls, median_range, name_of, percentile,
                           play, poisson, table, weight_bytes)

WARM = ["--warm-workers", "0"]
IDLE_S = 5
KV_MEMORY = 256 << 20  # of each function, as gateway_study.py starts gateways
BLOCK = 16  # tokens of a KV block
SEQUENCES = 64  # that a process decodes at a time, by default
STEP = 512  # tokens, at most
STEP_TO_DECODES = 3  # a step with prompts takes at most so many times its decodes alone
SHORT, MIDDLE = 1, 256  # tokens of the prompts that measure
HOT = (256, 512, 1024)  # tokens of those that come together
TOGETHER = 4  # sequences
KINDS = ("poisson", "bursty")
STREAM = 128  # tokens of the answers that measure
STREAM_STARTS_S = 0.015  # until a stream has its first token and not yet its last one
# Between calls that measure, in the mean: as long as the cores rest between those of the
# comparison. A prompt is the slower the longer they have rested.
PAUSE_S = 0.06
# Rests of known lengths, and how many turns after each are measured.
RESTS = ((0.0, 24), (0.01, 24), (0.06, 24), (0.25, 16), (1.0, 8))


class Times:
    """The seconds and bytes that one machine takes for a model."""

    def __init__(self, seconds, memory, token_memory, rests=()):
        self.seconds = seconds  # by key of the cluster file
        self.memory, self.token_memory = memory, token_memory
        # After each of RESTS: the factor of what a turn takes more, and http_s.
        self.rests = rests

    def of_call(self, prompt, output):
        """Alone on the machine, in turns."""
        times = self.seconds
        return (times["wake_s"] + times["wake_token_s"] * min(prompt, STEP) +
                output * times["decode_step_s"] +
                (output - 1) * times["decode_sequence_s"] + prompt * times["prefill_token_s"] +
                times["prefill_pair_s"] * prompt * (prompt + 1) / 2)

    def cluster(self, backbone, cores, weights):
        times = {key: f"{key} = {value:.6g}\n" for key, value in self.seconds.items()}
        machine = "".join(times.pop(key) for key in ("wake_s", "handover_s", "http_s",
                                                     "call_cpu_s"))
        rests = "".join(f"\n[[rest]]\nseconds = {rest:g}\nfactor = {factor:.4g}\n"
                        f"http_s = {http:.6g}\n"
                        for (rest, _), (factor, http) in zip(RESTS, self.rests))
        return (f"[machine]\ncores = {cores}\nhost_memory = {1 << 40}\n"
                f"max_sequences = {SEQUENCES}\n" + machine + rests +
                f'\n[[model]]\nbackbone = "{backbone}"\nmemory = {weights}\n'
                f"instance_memory = {round(self.memory)}\ntoken_memory = {self.token_memory}\n"
                f"kv_memory = {KV_MEMORY}\n" + "".join(times.values()))


def mean_of(all_times):
    """The means of several measurements. Factors are weighed by what they multiply."""
    keys = all_times[0].seconds
    weights = [one.seconds["wake_s"] + one.seconds["wake_token_s"] * MIDDLE for one in all_times]
    return Times({key: statistics.mean(one.seconds[key] for one in all_times) for key in keys},
                 statistics.mean(one.memory for one in all_times), all_times[0].token_memory,
                 [mean_rest(rests, weights) for rests in zip(*(one.rests for one in all_times))])


def mean_rest(rests, weights):
    factors, https = zip(*rests)
    return (sum(map(operator.mul, factors, weights)) / (sum(weights) or 1),
            statistics.mean(https))


def line(x1, y1, x2, y2):
    """(constant, slope), neither below 0."""
    slope = max(0.0, (y2 - y1) / (x2 - x1))
    return max(0.0, y1 - slope * x1), slope


def prompt_times(step, seconds):
    """(seconds of a token, seconds of a pair of positions) from the times of prompts of HOT tokens,
    which fill steps. Only their differences count."""
    points = []
    known = list(zip(HOT, seconds))
    for (less, before), (more, after) in zip(known, known[1:]):
        tokens = more - less
        points += [(less + more + 1) / 2, (after - before - step * tokens / STEP) / tokens]
    return line(*points)


def step_margin(decode, chunk):
    """By how much a step of `decode` and `chunk` seconds is shorter than three times the decode."""
    return min(max(STEP_TO_DECODES * decode / (decode + chunk), 1), STEP_TO_DECODES)


def handed_turn(functions, alone, together):
    """The seconds of a turn after another function's: of a call of each function at once, all turns
    but the first one, which takes as long as `alone`."""
    return (together - alone) / (functions - 1)


def rest_factors(warm, usual, rested):
    """The factor of each turn of `rested` seconds: its time beyond `warm` to that of `usual`."""
    more = usual - warm
    return [max(0.0, one - warm) / more if more > 0 else 1.0 for one in rested]


def longer_steps(metrics):
    """The number of steps of more than one token, from the text of /metrics."""
    found = {}
    for line_ in metrics.splitlines():
        name, _, value = line_.rpartition(" ")
        if name.startswith("sluice:iteration_tokens_total_"):
            found[re.sub(r'\{.*le="(.*)".*\}', r" \1", name).rpartition("total_")[2]] = float(value)
    return found["bucket +Inf"] - found["bucket 1"]


def token_bytes(model):
    """KV of a token: BF16 keys and values of all layers, from the checkpoint's configuration."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    return config["num_hidden_layers"] * 2 * config.get("num_key_value_heads", heads) * dim * 2


def kept_tokens(prompt, output):
    """Whole blocks of what a call computes; its last token is not computed."""
    return (prompt + output - 1) // BLOCK * BLOCK


def memory_of(rows):
    """GB-seconds of all functions."""
    return sum(part for row in rows if row["tenant"] for kind in row["memory_gb_seconds"].values()
               for part in kind.values())


def turn_seconds(gateway):
    """The time of all turns so far."""
    rows = gateway.usage_rows()
    return sum(row["core_seconds"] for row in rows if row["tenant"]) / os.cpu_count()


def cpu_seconds(pid):
    """The CPU time of a process's threads and of this program."""
    total = time.process_time()
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as stream:
            total += 1e-9 * int(stream.read().split()[0])
    return total


async def at_once(gateway, calls):
    now = time.monotonic()
    await asyncio.gather(*(call.run(gateway, now) for call in calls))


class Measurement:
    """A gateway whose functions take calls of known lengths."""

    def __init__(self, gateway, functions):
        self.gateway, self.functions = gateway, functions
        self.pauses = random.Random(0)

    def calls(self, tenant, prompt, output, count=1):
        return self.together([Call(0, tenant, prompt, output) for _ in range(count)])

    def together(self, calls):
        asyncio.run(at_once(self.gateway, calls))
        if any(call.status != 200 for call in calls):
            raise SystemExit("a call that measures was refused")
        return calls

    def across(self, number, prompt):
        """Turn seconds of a round of one call of each function at once: the mean."""
        turns = []
        for _ in range(number):
            before = turn_seconds(self.gateway)
            time.sleep(self.pauses.expovariate(1 / PAUSE_S))
            self.together([Call(0, tenant, prompt, 1) for tenant in range(self.functions)])
            turns.append(turn_seconds(self.gateway) - before)
        return statistics.mean(turns)

    def hot(self, number, count):
        """Turn seconds of a prompt of each of HOT tokens, beside `count` - 1 others at once: the
        means of `number` rounds, which take turns. Rounds of all lengths begin alike, after a rest
        and with as many calls that take a core, so their differences are of tokens alone."""
        found = [[] for _ in HOT]
        for i in range(number):
            for one, prompt in zip(found, HOT):
                one.append(self.round(i, prompt, 1, count)[0] / count)
        return [statistics.mean(one) for one in found]

    def call_cpu(self, number, prompt, pairs=4):
        """CPU seconds of a call outside of its function: of each of `number` calls at once, less
        those of one, so that what a round of calls takes is in neither. The median of `pairs`."""
        found = []
        for i in range(pairs):
            spent = []
            for count in (1, number):
                before = cpu_seconds(self.gateway.process.pid)
                self.calls(i % self.functions, prompt, 1, count)
                time.sleep(PAUSE_S)  # the connections close
                spent.append(cpu_seconds(self.gateway.process.pid) - before)
            found.append((spent[1] - spent[0]) / (number - 1))
        return statistics.median(found)

    def rounds(self, number, prompt, output, count=1):
        """Rounds of `count` calls at once: (mean turn seconds of a round, median time outside of
        turns before the first token, if the answers have one token). The cores rest before each
        round, as they do between calls of clients: a prompt then takes longer."""
        turns, outside = zip(*(self.round(i, prompt, output, count) for i in range(number)))
        return statistics.mean(turns), statistics.median(outside)

    def round(self, number, prompt, output, count, rest=None):
        """(Turn seconds, time outside of turns) of one round of rounds()."""
        before = turn_seconds(self.gateway)
        time.sleep(self.pauses.expovariate(1 / PAUSE_S) if rest is None else rest)
        calls = self.calls(number % self.functions, prompt, output, count)
        turns = turn_seconds(self.gateway) - before
        return turns, statistics.median(call.ttft for call in calls) - turns

    def chunk(self, number):
        """Tokens of a prompt in a step beside one stream, in the mean of `number` prompts: each
        comes while a stream runs, whose own steps have one token."""
        steps = 0
        for i in range(number):
            before = longer_steps(self.gateway.metrics())
            tenant = i % self.functions
            self.together([Call(0, tenant, MIDDLE, STREAM),
                           Call(STREAM_STARTS_S, tenant, MIDDLE, 1)])
            # One more step has the stream's own prompt.
            steps += longer_steps(self.gateway.metrics()) - before - 1
        # The last chunk of a prompt is what is left: half of a chunk in the mean.
        return MIDDLE / max(1, steps / number - 0.5)

    def after_rests(self, prompt):
        """After each of RESTS, of one call at a time: (mean turn seconds, median time outside)."""
        for rest, number in RESTS:
            turns, outside = zip(*(self.round(i, prompt, 1, 1, rest) for i in range(number)))
            yield statistics.mean(turns), statistics.median(outside)

    def memory(self):
        """Bytes of all functions."""
        began, before = time.monotonic(), memory_of(self.gateway.usage_rows())
        time.sleep(3)
        return (memory_of(self.gateway.usage_rows()) - before) / (time.monotonic() - began) * 1e9


def measure(options, folder):
    functions = options.functions
    config = Config([options.model] * functions, idle_s=600)
    with Gateway(options.sluice, config, [*WARM, "--max-functions", str(functions)],
                 folder) as gateway:
        on = Measurement(gateway, functions)
        cold = [on.calls(tenant, SHORT, 1)[0].ttft for tenant in range(functions)]
        for tenant in range(functions):  # buffers grow with use
            on.calls(tenant, options.prompt, options.output, TOGETHER)
        kv = functions * TOGETHER * kept_tokens(options.prompt, options.output)
        memory = on.memory() - weight_bytes(options.model) - kv * token_bytes(options.model)
        short, short_http = on.rounds(60, SHORT, 1)
        middle, middle_http = on.rounds(60, MIDDLE, 1)
        alone = (on.rounds(10, MIDDLE, STREAM)[0] - middle) / (STREAM - 1)
        together = (on.rounds(10, MIDDLE, STREAM, TOGETHER)[0] -
                    on.rounds(10, MIDDLE, 1, TOGETHER)[0]) / (STREAM - 1)
        call_cpu = on.call_cpu(20, MIDDLE)
        hot = on.hot(12, 4)
        chunk = on.chunk(12)
        others = [on.across(40, prompt) for prompt in (SHORT, MIDDLE)] if functions > 1 else []
        rests, rests_http = zip(*on.after_rests(MIDDLE))
    step, sequence = line(1, alone, TOGETHER, together)
    token, pair = prompt_times(step, hot)
    margin = step_margin(step + sequence, chunk * (token + pair * MIDDLE / 2))
    # The first steps of turns: after a rest, and after another function.
    rested, handed = (short, middle), (short, middle)
    if functions > 1:
        handed = [handed_turn(functions, *turns) for turns in zip(rested, others)]
    (wake, wake_token), (handover, handover_token) = (
        (max(0.0, one - step - token),
         max(0.0, (more - one) / (MIDDLE - SHORT) - pair * (MIDDLE + 1) / 2 - token))
        for one, more in (rested, handed))
    warm = middle - wake - wake_token * MIDDLE
    seconds = {"wake_s": wake, "handover_s": handover,
               "http_s": statistics.mean((short_http, middle_http)), "call_cpu_s": call_cpu,
               "kernels_s": max(0.0, statistics.median(cold) - short - short_http),
               "prefill_token_s": token, "prefill_pair_s": pair,
               "wake_token_s": wake_token, "handover_token_s": handover_token,
               "decode_step_s": step,
               "decode_sequence_s": sequence, "step_margin": margin}
    return Times(seconds, memory / functions, token_bytes(options.model),
                 list(zip(rest_factors(warm, middle, rests), rests_http)))


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
        time.sleep(0.5)  # the simulation ends at a whole second
        rows = [row for row in gateway.usage_rows() if row["tenant"]]
    if len(answered) != len(calls):
        raise SystemExit(f"{len(calls) - len(answered)} calls were refused: lower --load")
    ttft = [call.ttft for call in calls]
    return {"TTFT, mean": statistics.mean(ttft), "TTFT, P50": percentile(ttft, 0.5),
            "TTFT, P90": percentile(ttft, 0.9), "TTFT, P99": percentile(ttft, 0.99),
            "E2E, mean": statistics.mean(call.e2e for call in calls),
            "core seconds": sum(row["core_seconds"] for row in rows),
            "GB-seconds": memory_of(rows), "bill": sum(row["cost"] for row in rows)}


def simulated(options, folder, calls, cluster):
    functions = Config([options.model] * options.functions, idle_s=IDLE_S).write(folder)
    times = os.path.join(folder, "cluster.toml")
    with open(times, "w", encoding="ascii") as stream:
        stream.write(cluster)
    path = os.path.join(folder, "calls.csv")
    with open(path, "w", encoding="ascii") as stream:
        stream.write("seconds,function,prompt_tokens,output_tokens\n")
        for due, tenant, prompt, output in calls:
            stream.write(f"{due:.6f},t{tenant}/{name_of(options.model)},{prompt},{output}\n")
    out = subprocess.run([options.sluice, "simulate", "--functions", functions, "--cluster",
                          times, "--calls", path, "--json"], check=True, capture_output=True)
    report = json.loads(out.stdout)[0]
    ttft = report["ttft_s"]
    return {"TTFT, mean": ttft["mean"], "TTFT, P50": ttft["p50"], "TTFT, P90": ttft["p90"],
            "TTFT, P99": ttft["p99"], "E2E, mean": report["e2e_s"]["mean"],
            "core seconds": report["core_seconds"], "GB-seconds": report["memory_gb_seconds"],
            "bill": report["cost"]}


def run_rounds(options, folder):
    """The cluster file of all measurements, and the rounds of each kind: the calls as they were
    sent, what the gateway measured, and the round's own cluster file."""
    cluster = functools.partial(Times.cluster, backbone=name_of(options.model),
                                cores=os.cpu_count(), weights=weight_bytes(options.model))
    measured = [measure(options, folder)]
    rate = options.load / options.functions / measured[0].of_call(options.prompt, options.output)
    rounds = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        for kind in KINDS:
            calls = made_calls(options, kind, rate, number)
            theirs = real(options, folder, calls)
            measured.append(measure(options, folder))
            sent = sorted((c.sent, c.tenant, c.prompt, c.output) for c in calls)
            rounds[kind].append((sent, theirs, cluster(mean_of(measured[-2:]))))
    return {"cluster": cluster(mean_of(measured)), "rounds": rounds}


def compare(options, kind, rounds, folder):
    ratios = {}
    for calls, theirs, cluster in rounds:
        ours = simulated(options, folder, calls, cluster)
        for name, value in theirs.items():
            ratios.setdefault(name, []).append(ours[name] / value)
    rate = statistics.mean(len(calls) for calls, *_ in rounds) / options.seconds / options.functions
    table(f"**{kind}**: {options.functions} functions, {rate:.2f} calls/s of each, prompts of "
          f"{options.prompt} tokens, answers of {options.output}; {len(rounds)} rounds of "
          f"{options.seconds:g} s", ("", "simulated to real (goal: 0.85 to 1.15)"),
          [(name, median_range(values, "{:.2f}")) for name, values in ratios.items()])


def runs_of(options, folder):
    """The results of run_rounds(), made now or read from a record."""
    if options.replay:
        with open(options.replay, encoding="ascii") as stream:
            return json.load(stream)
    runs = run_rounds(options, folder)
    print(runs["cluster"], flush=True)
    if options.record:
        with open(options.record, "w", encoding="ascii") as stream:
            json.dump(runs, stream)
    return runs


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
    parser.add_argument("--record", metavar="FILE", help="keep the calls and what was measured")
    parser.add_argument("--replay", metavar="FILE", help="simulate the calls of such a file again")
    parser.add_argument("--cluster", metavar="FILE", help="simulate with the times of this file")
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    with tempfile.TemporaryDirectory() as folder:
        runs = runs_of(options, folder)
        cluster = None
        if options.cluster:
            with open(options.cluster, encoding="ascii") as stream:
                cluster = stream.read()
        for kind, rounds in runs["rounds"].items():
            compare(options, kind, [(calls, theirs, cluster or own)
                                    for calls, theirs, own in rounds], folder)


if __name__ == "__main__":
    main()
