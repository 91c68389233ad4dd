#!/usr/bin/env python3
"""The figures and tables of ServerlessLoRA (section 6) by `sluice simulate --functions`, beside the
paper's own numbers, as Markdown for docs/serverless-paper.md.

    tools/serverless_figures.py build/release/apps/sluice [--data DIR] [--hours 4] [--seed 1]
        [--quick]

DIR has traces/servegen_client_cv_classes.csv, traces/azure_functions_2021_sample.csv,
prompts/gsm8k_test.jsonl and tokenizers/llama-2/tokenizer.json. Without it, each class has one CoV,
and prompts have 100 tokens in the mean; the output says so. The paper does not give the rates of
its calls. So the rate of each class is the one at which the simulated ServerlessLLM has the paper's
mean answer time for Llama-2 7B; all systems then get the same calls.
"""

import argparse
import csv
import json
import os
import random
import re
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTER = os.path.join(ROOT, "examples", "cluster-l40s.toml")
CLASSES = ("predictable", "normal", "bursty")
PLAIN_COV = {"predictable": 0.7, "normal": 2.0, "bursty": 6.0}
SERIES = {"7B": ("llama2-7b", 2500), "13B": ("llama2-13b", 4000)}
SYSTEMS = ("vllm", "dlora", "instainfer", "serverlessllm", "sluice")
IDLE_S = 60
OUTPUT_TOKENS = 100  # as the decode times of the cluster file assume
RATES = (0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.04)
VARIED = ("worker_s", "disk_s", "copy_s", "kernels_s", "adapter_disk_s")

# Table 1 of the paper, by system and series: E2E in ms and cost in $, by class.
TABLE_1 = {
    "vllm": {"7B": ((2395, 2425, 2509), (20.93,) * 3), "13B": ((2458, 2441, 2573), (42.96,) * 3)},
    "dlora": {"7B": ((2518, 2589, 2793), (7.32,) * 3), "13B": ((2672, 2683, 2856), (11.40,) * 3)},
    "instainfer": {"7B": ((3811, 4512, 5620), (24.32, 32.68, 24.73)),
                   "13B": ((5777, 7318, 7986), (53.30, 51.46, 36.58))},
    "serverlessllm": {"7B": ((3807, 4569, 5168), (24.29, 33.10, 22.74)),
                      "13B": ((4733, 5690, 6474), (43.67, 40.01, 29.65))},
    "sluice": {"7B": ((2922, 3061, 3050), (4.66, 5.54, 3.35)),
               "13B": ((3166, 3338, 3631), (7.30, 5.87, 4.16))},
}
TABLE_2 = {"sluice": (547, 73, 4.76), "serverlessllm": (331, 32, 1.72),
           "instainfer": (331, 32, 1.48)}
TABLE_3 = {"sluice": (576, 2977, 7.53), "sluice-no-sharing": (2608, 4959, 12.55),
           "sluice-no-preload": (1345, 3747, 9.48), "sluice-no-offload": (1047, 3328, 8.42),
           "sluice-batch-1": (1386, 3799, 9.61), "sluice-batch-10": (693, 3425, 8.66),
           "sluice-batch-20": (721, 3526, 8.92)}


class Data:
    """CoVs of the classes and lengths of prompts: measured ones where there are files."""

    def __init__(self, sluice, folder):
        self.covs = {name: [cov] for name, cov in PLAIN_COV.items()}
        self.prompts = None
        self.azure = []
        if not folder:
            return
        with open(os.path.join(folder, "traces", "servegen_client_cv_classes.csv"),
                  encoding="ascii") as stream:
            rows = list(csv.DictReader(stream))
        for name in CLASSES:
            self.covs[name] = [float(row["rate_weighted_iat_cv"]) for row in rows
                               if row["cv_class"] == name]
        with open(os.path.join(folder, "prompts", "gsm8k_test.jsonl"), encoding="utf-8") as stream:
            questions = [json.loads(line)["question"] for line in stream]
        text = "".join(json.dumps(question) + "\n" for question in questions)
        ids = subprocess.run(
            [sluice, "tokenize", "--jsonl",
             os.path.join(folder, "tokenizers", "llama-2", "tokenizer.json")],
            input=text, stdout=subprocess.PIPE, check=True, text=True).stdout
        self.prompts = [len(json.loads(line)) for line in ids.splitlines()]
        with open(os.path.join(folder, "traces", "azure_functions_2021_sample.csv"),
                  encoding="ascii") as stream:
            starts = {}
            for row in csv.DictReader(stream):
                start = float(row["end_timestamp"]) - float(row["duration"])
                starts.setdefault(row["func"], []).append(start)
        self.azure = [(len(times), cov_of(sorted(times))) for times in starts.values()
                      if len(times) >= 10]

    def prompt(self, generator):
        return generator.choice(self.prompts) if self.prompts else generator.randint(50, 150)


def cov_of(times):
    gaps = [b - a for a, b in zip(times, times[1:])]
    mean = statistics.mean(gaps)
    return statistics.pstdev(gaps) / mean if mean > 0 else 0  # all at one moment


def class_of(cov):
    return "predictable" if cov <= 1 else "normal" if cov <= 4 else "bursty"


class Study:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.data = Data(options.sluice, options.data)
        self.seconds = options.hours * 3600
        with open(CLUSTER, encoding="ascii") as stream:
            self.cluster = stream.read()

    def functions(self, series):
        """[(function, backbone, SLO)] of as many adapters of each series as are asked for."""
        return [(f"a{series_name.lower()}-{i}", *SERIES[series_name])
                for series_name, count in series for i in range(count)]

    def write_functions(self, functions):
        lines = ['[[tenant]]\nname = "t"\nkey_sha256 = "' + "0" * 64 + '"\n']
        for backbone in sorted({backbone for _, backbone, _ in functions}):
            lines.append(f'[[backbone]]\nname = "{backbone}"\ndirectory = "x"\n')
        for name, backbone, slo in functions:
            lines.append(f'[[adapter]]\nname = "{name}"\nbackbone = "{backbone}"\ntenant = "t"\n'
                         f'directory = "x"\nttft_slo_ms = {slo}\nidle_s = {IDLE_S}\n')
        return self.write("functions.toml", "\n".join(lines))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as stream:
            stream.write(text)
        return path

    def calls(self, functions, kind, rate, seconds=None):
        """Gamma distributed gaps for each function, whose CoV is one of the class."""
        seconds = seconds or self.seconds
        calls = []
        for number, (name, _, _) in enumerate(functions):
            # A function has the same calls in every study of a class.
            generator = random.Random(f"{self.options.seed} {kind} {number}")
            covs = self.data.covs[kind]
            shape = 1 / generator.choice(covs) ** 2
            now = generator.random() / rate
            while now < seconds:
                calls.append((now, name, self.data.prompt(generator),
                              generator.randint(OUTPUT_TOKENS // 2, OUTPUT_TOKENS * 3 // 2)))
                now += generator.gammavariate(shape, 1 / (rate * shape))
        return sorted(calls)

    def cluster_with(self, **values):
        text = self.cluster
        for key, value in values.items():
            change = value if callable(value) else lambda _, fixed=value: fixed
            text, count = re.subn(rf"(?m)^({key} = )([0-9_.]+)",
                                  lambda m, f=change: f"{m[1]}{f(float(m[2].replace('_', '')))}",
                                  text)
            assert count, key
        return text

    def run(self, functions, calls, systems, **cluster):
        rows = "".join(f"{t:.6f},t/{name},{prompt},{output}\n" for t, name, prompt, output in calls)
        out = subprocess.run(
            [self.options.sluice, "simulate", "--functions", self.write_functions(functions),
             "--cluster", self.write("cluster.toml", self.cluster_with(**cluster)), "--calls",
             self.write("calls.csv", "seconds,function,prompt_tokens,output_tokens\n" + rows),
             "--systems", ",".join(systems), "--json"],
            stdout=subprocess.PIPE, check=True, text=True).stdout
        return {one["system"]: one for one in json.loads(out)}

    def rate_of(self, kind):
        """The rate at which the simulated ServerlessLLM answers as slowly as the paper's."""
        wanted = TABLE_1["serverlessllm"]["7B"][0][CLASSES.index(kind)] / 1e3
        functions = self.functions([("7B", 4)])

        def miss(rate):
            calls = self.calls(functions, kind, rate)
            if len(calls) < 20:
                return float("inf")
            result = self.run(functions, calls, ["serverlessllm"], devices=8)
            return abs(result["serverlessllm"]["e2e_s"]["mean"] - wanted)
        return min(RATES, key=miss)


def ms(seconds):
    return f"{1e3 * seconds:,.0f}"


def table(title, heads, rows, note=""):
    print(f"\n{title}\n\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    if note:
        print("\n" + note)


def effect(one):
    """1 / (E2E x cost)."""
    return 1 / (one["e2e_s"]["mean"] * one["cost"])


def paper_effect(system, series, i):
    times, costs = TABLE_1[system][series]
    return 1 / (times[i] * costs[i])


def late(one):
    return 100 * (one["violations"] + one["refused"] + one["unplaced"]) / one["calls"]


def workload(study, rates):
    rows = []
    for kind in CLASSES:
        functions = study.functions([("7B", 4), ("13B", 4)])
        calls = study.calls(functions, kind, rates[kind])
        covs = []
        most = 0
        for name, _, _ in functions:
            times = [call[0] for call in calls if call[1] == name]
            if len(times) > 2:
                covs.append(cov_of(times))
            minutes = [int(t // 60) for t in times]
            most = max([most] + [minutes.count(m) for m in set(minutes)])
        prompts = [call[2] for call in calls]
        rows.append((kind, f"{rates[kind]:g}", len(calls),
                     f"{statistics.median(covs):.1f} ({min(covs):.1f} to {max(covs):.1f})", most,
                     f"{statistics.mean(prompts):.0f} ({min(prompts)} to {max(prompts)})"))
    azure = [class_of(cov) for _, cov in study.data.azure]
    table("**Figure 5: the workload** of 4 + 4 functions",
          ("class", "calls/s of a function", "calls", "CoV, median and range",
           "most calls of a function in a minute", "prompt tokens"), rows,
          "" if not azure else
          f"The Azure sample has {len(azure)} functions with 10 calls or more: " +
          ", ".join(f"{azure.count(kind)} {kind}" for kind in CLASSES) + ".")


def times_and_costs(study, rates):
    """Figures 6, 7, 9 and 12 and table 1, from the same runs. Returns them."""
    results = {}
    for series in SERIES:
        functions = study.functions([(series, 4)])
        for kind in CLASSES:
            calls = study.calls(functions, kind, rates[kind])
            results[series, kind] = study.run(functions, calls, SYSTEMS, devices=8)
    for series in SERIES:
        table(f"**Table 1, figures 6, 9 and 12: Llama-2 {series}**, 4 functions, 8 devices (ours / "
              "the paper's)",
              ("class", "system", "TTFT mean, ms", "P50", "P99", "later than the SLO, %",
               "E2E, ms", "cost, $", "effectiveness to vLLM"),
              [(kind, system, ms(one["ttft_s"]["mean"]), ms(one["ttft_s"]["p50"]),
                ms(one["ttft_s"]["p99"]), f"{late(one):.1f}",
                f"{ms(one['e2e_s']['mean'])} / {TABLE_1[system][series][0][i]:,}",
                f"{one['cost']:.2f} / {TABLE_1[system][series][1][i]:.2f}",
                f"{effect(one) / effect(results[series, kind]['vllm']):.2f} / "
                f"{paper_effect(system, series, i) / paper_effect('vllm', series, i):.2f}")
               for i, kind in enumerate(CLASSES)
               for system, one in results[series, kind].items()])
    table("**Figure 7: time per output token**, `normal` (the paper: 12 % more than the others)",
          ("series", *SYSTEMS),
          [(series, *(f"{1e3 * results[series, 'normal'][s]['tpot_s']:.1f} ms" for s in SYSTEMS))
           for series in SERIES])
    return results


PARTS = ("place", "under_way", "libraries", "backbone", "adapter", "kernels", "queue", "prefill",
         "decode")


def part_rows(results, systems):
    return [(system, *(ms(results[system]["parts_s"][part]) for part in PARTS),
             ms(results[system]["e2e_s"]["mean"]) if results[system]["answered"] else "")
            for system in systems]


def breakdowns(study, rates):
    heads = ("system", *PARTS, "E2E")
    functions = study.functions([("13B", 3)])
    results = study.run(functions, study.calls(functions, "normal", rates["normal"]),
                        ("instainfer", "serverlessllm", "sluice"), devices=8)
    table("**Figure 1: parts of a call's time, ms**, three functions of Llama-2 13B, `normal`",
          heads, part_rows(results, results))
    for series in SERIES:
        functions = study.functions([(series, 1)])
        # Each call finds no process, and all that its system keeps or loads before calls.
        calls = [(600.0 * i, functions[0][0], 100, OUTPUT_TOKENS) for i in range(1, 12)]
        first = study.run(functions, calls[:1], ("instainfer", "serverlessllm", "sluice"))
        all_calls = study.run(functions, calls, first)
        rows = []
        for system, one in all_calls.items():
            start = {part: (len(calls) * one["parts_s"][part] - first[system]["parts_s"][part]) /
                     (len(calls) - 1) for part in PARTS}
            cold = sum(start[part] for part in PARTS[:6])
            rows.append((system, *(ms(start[part]) for part in PARTS),
                         f"{100 * cold / sum(start.values()):.0f} %"))
        table(f"**Figure 8a: one call without a process, prepared, ms**, Llama-2 {series} (the "
              "paper: 0 for ours, 9 % for InstaInfer)", ("system", *PARTS, "start's part"), rows)
    functions = study.functions([("7B", 4), ("13B", 4)])
    results = study.run(functions, study.calls(functions, "normal", rates["normal"]),
                        ("instainfer", "serverlessllm", "sluice"), devices=16)
    table("**Figure 8b: parts of a call's time, ms**, 4 + 4 functions, `normal`, 16 devices", heads,
          part_rows(results, results))


def motivation(study, rates):
    rows = []
    for count in (1, 4):
        functions = study.functions([("7B", count)])
        results = study.run(functions, study.calls(functions, "normal", rates["normal"]), SYSTEMS,
                            devices=8)
        rows.append((count, *(f"{effect(results[s]) / effect(results['vllm']):.2f}"
                              for s in SYSTEMS)))
    table("**Figure 2: cost-effectiveness to vLLM**, `normal` (the paper: about 3 for the "
          "serverless ones with one function, less than 1 with four)",
          ("functions", *SYSTEMS), rows)


def throughput(study):
    functions = study.functions([("7B", 4)])
    systems = ("sluice", "serverlessllm", "instainfer")
    calls = study.calls(functions, "predictable", 10, seconds=60)
    rows = []
    for system in systems:
        most = TABLE_2[system][1]
        # One system's own peak batch; no call is refused, so that all end.
        patient = [(name, backbone, 3_600_000) for name, backbone, _ in functions]
        one = study.run(patient, calls, [system], devices=2, max_sequences=most)[system]
        tokens = sum(call[3] for call in calls) * one["answered"] / one["calls"]
        rows.append((system, f"{tokens / one['seconds']:.0f} / {TABLE_2[system][0]}", most,
                     f"{one['answered'] / one['seconds']:.2f} / {TABLE_2[system][2]}",
                     f"{one['seconds']:.0f}", f"{one['answered']} of {one['calls']}"))
    table("**Table 2 and figure 10a: throughput** of four 7B functions on two devices, all calls "
          "in the first minute, with the paper's batches (ours / the paper's)",
          ("system", "tokens/s", "batch", "calls/s", "seconds until the last answer", "answered"),
          rows)


def ablation(study, rates):
    functions = study.functions([("7B", 4), ("13B", 4)])
    calls = study.calls(functions, "normal", rates["normal"])
    for devices in (16, 2):
        results = study.run(functions, calls, TABLE_3, devices=devices)
        full = results["sluice"]
        table(f"**Table 3 and figure 10b: ablation**, 4 + 4 functions, `normal`, {devices} devices "
              "(ours / the paper's, which has 16)",
              ("system", "TTFT, ms", "E2E, ms", "cost, $", "E2E x cost to `sluice`",
               "later than the SLO, %"),
              [(system, f"{ms(one['ttft_s']['mean'])} / {TABLE_3[system][0]:,}",
                f"{ms(one['e2e_s']['mean'])} / {TABLE_3[system][1]:,}",
                f"{one['cost']:.2f} / {TABLE_3[system][2]:.2f}",
                f"{effect(full) / effect(one):.2f}", f"{late(one):.1f}")
               for system, one in results.items()])


def scaling(study, rates):
    systems = ("instainfer", "serverlessllm", "sluice")
    functions = study.functions([("7B", 4), ("13B", 4)])
    calls = study.calls(functions, "normal", rates["normal"])
    rows = []
    for devices in (1, 2, 4, 8, 16):
        results = study.run(functions, calls, systems, devices=devices)
        rows.append(("strong", devices, 8, *(f"{ms(results[s]['e2e_s']['mean'])}, "
                                             f"{late(results[s]):.1f} %" for s in systems)))
    for half in (1, 2, 4, 8):
        functions = study.functions([("7B", half), ("13B", half)])
        calls = study.calls(functions, "normal", rates["normal"])
        results = study.run(functions, calls, systems, devices=2 * half)
        rows.append(("weak", 2 * half, 2 * half, *(f"{ms(results[s]['e2e_s']['mean'])}, "
                                                   f"{late(results[s]):.1f} %" for s in systems)))
    table("**Figure 11: scaling**, `normal`: E2E in ms, and the part later than the SLO",
          ("kind", "devices", "functions", *systems), rows)


def sensitivity(study, rates):
    functions = study.functions([("7B", 4)])
    rows = []
    for key in ("", *VARIED):
        for factor in (0.5, 2) if key else (1,):
            change = {key: lambda value, f=factor: value * f} if key else {}
            cells = []
            for kind in CLASSES:
                calls = study.calls(functions, kind, rates[kind])
                results = study.run(functions, calls, ("serverlessllm", "sluice"), devices=8,
                                    **change)
                ours, theirs = results["sluice"], results["serverlessllm"]
                cells.append(f"{theirs['ttft_s']['mean'] / ours['ttft_s']['mean']:.1f}, "
                             f"{effect(ours) / effect(theirs):.1f}")
            rows.append((f"{key} x {factor:g}" if key else "as in the file", *cells))
    table("**Load times varied by 2**, Llama-2 7B: how many times better TTFT and E2E x cost are "
          "than ServerlessLLM's", ("time", *CLASSES), rows)


def goals(results):
    def best(of):
        return max((of(one), f"{series}, {kind}") for (series, kind), one in results.items())
    ttft = best(lambda one: one["serverlessllm"]["ttft_s"]["mean"] /
                one["sluice"]["ttft_s"]["mean"])
    money = best(lambda one: effect(one["sluice"]) / effect(one["serverlessllm"]))
    worst = best(lambda one: late(one["sluice"]))
    cells = list(results.values())
    orders = sum(effect(one["sluice"]) == max(effect(one[s]) for s in SYSTEMS) for one in cells)
    table("**Goals**", ("what", "goal", "ours", "the paper's"),
          [("TTFT to ServerlessLLM, best cell", "4 times", f"{ttft[0]:.1f} ({ttft[1]})", "4.7"),
           ("effectiveness to ServerlessLLM, best cell", "12 times", f"{money[0]:.1f} ({money[1]})",
            "12.6"),
           ("later than the SLO, worst cell", "10 %", f"{worst[0]:.1f} % ({worst[1]})", "10 %"),
           ("cells in which ours is the most effective", "6 of 6", f"{orders} of 6", "6 of 6")])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("--data")
    parser.add_argument("--hours", type=float, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="half an hour of calls, two rates")
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    global RATES  # pylint: disable=global-statement
    if options.quick:
        options.hours, RATES = 0.5, (0.006, 0.024)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(options, folder)
        rates = {kind: study.rate_of(kind) for kind in CLASSES}
        if not options.data:
            print("Without --data: one CoV for each class, and prompts of 50 to 150 tokens.")
        workload(study, rates)
        motivation(study, rates)
        results = times_and_costs(study, rates)
        breakdowns(study, rates)
        throughput(study)
        ablation(study, rates)
        scaling(study, rates)
        sensitivity(study, rates)
        goals(results)


if __name__ == "__main__":
    main()
