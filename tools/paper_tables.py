#!/usr/bin/env python3
"""Runs the evaluation of the Sarathi-Serve paper in the simulator and writes its results beside the
paper's: figures 10 to 14 and table 4.

    python3 tools/paper_tables.py --sluice build/release/apps/sluice --results build/paper.json
    python3 tools/paper_tables.py --from build/paper.json --page docs/sarathi.md
        --images docs/images

The first line runs the simulations (minutes on one core); the second writes the tables between the
markers of the page, and with --images the plots, for which it needs matplotlib
(tools/requirements.txt). Everything that is chosen here is the paper's: machines, models, SLOs,
batch sizes, token budgets, numbers of requests. The constants of the simulator are its own
(docs/simulator.md); none is set here.
"""

import argparse
import json
import subprocess
import sys
import time

STRICT, RELAXED = 5, 25  # times a decode step of 32 sequences at 4k context (section 5.1)
SLOS = {"strict": STRICT, "relaxed": RELAXED}
LENGTHS = {"sharegpt": "openchat_sharegpt4", "arxiv": "arxiv_summarization"}

# Table 1; nodes as section 5 has them. Orca's batch is what its memory allows (the artifact's
# settings), the others' is 128.
MODELS = {
    "mistral-7b": {"gpu": "a100-80g-pcie", "tp": 1, "pp": 1, "gpus_per_node": 4, "orca": 16},
    "yi-34b": {"gpu": "a100-80g-pcie", "tp": 2, "pp": 1, "gpus_per_node": 4, "orca": 16},
    "llama-2-70b": {"gpu": "a40", "tp": 4, "pp": 2, "gpus_per_node": 8, "orca": 8},
    "falcon-180b": {"gpu": "a100-80g-pcie", "tp": 4, "pp": 2, "gpus_per_node": 4, "orca": 8},
}
# Table 3, milliseconds: what the two multiples were on the paper's machines.
TABLE3 = {
    "mistral-7b": {"strict": 100, "relaxed": 500},
    "yi-34b": {"strict": 200, "relaxed": 1000},
    "llama-2-70b": {"strict": 1000, "relaxed": 5000},
    "falcon-180b": {"strict": 1000, "relaxed": 5000},
}
SYSTEMS = {"orca": "Orca", "vllm": "vLLM", "sarathi": "Sarathi-Serve"}
CONTEXT = {"sharegpt": 8192, "arxiv": 16384}

# The paper's figures, in the order of its sections.
CLAIMS = [
    ("Yi-34B, strict, sharegpt: over Orca", 4.0, ("yi-34b", "sharegpt", "strict", "orca")),
    ("Yi-34B, strict, sharegpt: over vLLM", 3.7, ("yi-34b", "sharegpt", "strict", "vllm")),
    ("LLaMA2-70B, sharegpt: over Orca, up to", 6.3, ("llama-2-70b", "sharegpt", None, "orca")),
    ("LLaMA2-70B, sharegpt: over vLLM, up to", 4.3, ("llama-2-70b", "sharegpt", None, "vllm")),
    ("Mistral-7B: over vLLM, up to", 2.6, ("mistral-7b", None, None, "vllm")),
    ("Mistral-7B, figure 12, strictest SLO: over vLLM", 3.5, "figure12 strict"),
    ("Yi-34B, figure 12, 1 s: over vLLM", 1.65, "figure12 relaxed"),
    ("Falcon-180B, relaxed: over vLLM with TP4-PP2", 1.48, "figure13 relaxed"),
    ("Falcon-180B, strict: over vLLM with TP4-PP2", 3.6, "figure13 strict"),
    ("Falcon-180B, strict: over vLLM with TP-8", 4.3, "figure13 tp8"),
]
TABLE4 = {  # seconds: TTFT and TBT of sharegpt, then of arxiv
    "hybrid-only": (0.53, 0.68, 3.78, 1.38),
    "chunked-only": (1.04, 0.17, 5.38, 0.20),
    "stall-free": (0.76, 0.14, 3.90, 0.17),
}
TABLE4_RATE = {"sharegpt": 1.0, "arxiv": 0.5}  # the artifact's
TABLE4_BUDGETS = (1024, 512)  # the paper's, and the one in the artifact's script
# Measured, of the artifact: prompt length to overhead at 512, 1,024 and 2,048.
FIGURE14 = {
    2048: (1.15, 1.17, 1.00),
    4096: (1.19, 1.20, 1.02),
    8192: (1.12, 1.11, 0.94),
    16384: (1.00, 0.96, 0.81),
}
FIGURE12_FACTORS = (5, 10, 15, 20, 25)


class Simulator:
    def __init__(self, binary):
        self.binary = binary
        self.runs = 0
        self.simulated = 0

    def run(self, *arguments):
        command = [self.binary, "simulate", "--json", "--no-progress", "--host-stack", "python"]
        command += [str(a) for a in arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        self.runs += 1
        return json.loads(done.stdout)


def deployment(model, tp=None, pp=None):
    m = MODELS[model]
    return ["--gpu", m["gpu"], "--model", model, "--tp", tp or m["tp"], "--pp", pp or m["pp"],
            "--gpus-per-node", m["gpus_per_node"]]


def scheduling(system, model, lengths, slo, batch=128, budget=None):
    """A system as the paper runs it. Orca's step has no limit of tokens; vLLM's is one context."""
    if system == "orca":
        batch = MODELS[model]["orca"]
        return ["--scheduler", "hybrid", "--max-num-seqs", batch, "--token-budget",
                batch * CONTEXT[lengths]]
    if system == "vllm":
        return ["--scheduler", "prefill-first", "--max-num-seqs", batch, "--token-budget",
                CONTEXT[lengths]]
    if budget is None:
        budget = 512 if slo == "strict" else 1536 if model == "llama-2-70b" else 2048
    return ["--scheduler", "stall-free", "--max-num-seqs", batch, "--token-budget", budget]


def capacity(simulator, model, lengths, slo_arguments, system_arguments, **kwargs):
    found = simulator.run(*deployment(model, **kwargs), "--lengths", lengths, "--max-model-len",
                          CONTEXT[lengths], "--capacity", *slo_arguments, *system_arguments)
    return {"capacity": found["capacity_request_rate"], "slo_ms": found["tbt_slo_ms"],
            "decode_ms": found["reference_decode_ms"], "probes": len(found["probes"])}


def slo_arguments(model, slo, in_seconds):
    if in_seconds:
        return ["--tbt-slo-ms", TABLE3[model][slo]]
    return ["--tbt-slo-factor", SLOS[slo]]


def figures_10_and_11(simulator, in_seconds):
    out = []
    for model in MODELS:
        for lengths in LENGTHS:
            for slo in SLOS:
                for system in SYSTEMS:
                    found = capacity(simulator, model, lengths,
                                     slo_arguments(model, slo, in_seconds),
                                     scheduling(system, model, lengths, slo))
                    out.append({"model": model, "lengths": lengths, "slo": slo,
                                "system": system, **found})
                    print(f"{model} {lengths} {slo} {system}: {found['capacity']:.3f}",
                          file=sys.stderr)
    return out


def figure_12(simulator, in_seconds):
    """In seconds only the two points that the paper names."""
    out = []
    for model in ("mistral-7b", "yi-34b"):
        systems = [("vllm", n, None) for n in (32, 64, 128)]
        systems += [("sarathi", 128, b) for b in (512, 2048)]
        for factor in (STRICT, RELAXED) if in_seconds else FIGURE12_FACTORS:
            slo = (["--tbt-slo-ms", TABLE3[model]["strict" if factor == STRICT else "relaxed"]]
                   if in_seconds else ["--tbt-slo-factor", factor])
            for system, batch, budget in systems:
                found = capacity(simulator, model, "sharegpt", slo,
                                 scheduling(system, model, "sharegpt", None, batch, budget))
                out.append({"model": model, "factor": factor, "system": system, "batch": batch,
                            "budget": budget, **found})
        print(f"figure 12: {model}", file=sys.stderr)
    return out


def figure_13(simulator, capacities):
    """TP-8 is held to the SLO of the deployment with two stages."""
    out = {"decode_ms": {}, "capacity": {}}
    for slo in SLOS:
        for system in ("vllm", "sarathi"):
            row = find(capacities, model="falcon-180b", lengths="sharegpt", slo=slo, system=system)
            out["capacity"][f"{system} tp4-pp2 {slo}"] = row["capacity"]
        slo_ms = row["slo_ms"]
        out["decode_ms"]["tp4-pp2"] = row["decode_ms"]
        found = capacity(simulator, "falcon-180b", "sharegpt", ["--tbt-slo-ms", slo_ms],
                         scheduling("vllm", "falcon-180b", "sharegpt", slo), tp=8, pp=1)
        out["capacity"][f"vllm tp8 {slo}"] = found["capacity"]
        out["decode_ms"]["tp8"] = found["decode_ms"]
    return out


def figure_14(simulator):
    """Time to the first token of one prompt, alone, by token budget."""
    out = {}
    for length in FIGURE14:
        times = []
        for budget in (512, 1024, 2048, length):
            found = simulator.run(*deployment("yi-34b"), "--lengths", f"fixed:{length},1",
                                  "--num-requests", 1, "--qps", 1, "--max-model-len", 32768,
                                  "--token-budget", budget)
            times.append(found["mean_ttft_ms"])
        out[str(length)] = [t / times[-1] for t in times[:-1]]
    return out


def table_4(simulator):
    out = {}
    for policy in TABLE4:
        for budget in TABLE4_BUDGETS:
            row = []
            for lengths, rate in TABLE4_RATE.items():
                found = simulator.run(*deployment("yi-34b"), "--lengths", lengths, "--scheduler",
                                      policy, "--token-budget", budget, "--num-requests", 128,
                                      "--qps", rate, "--max-model-len", CONTEXT[lengths])
                row += [found["median_ttft_ms"] / 1e3, found["p99_itl_ms"] / 1e3]
            out[f"{policy} {budget}"] = row
    return out


def bubbles(simulator, capacities):
    """Where the stages' time goes at vLLM's relaxed capacity, for the models with stages."""
    out = []
    for model in ("llama-2-70b", "falcon-180b"):
        rate = find(capacities, model=model, lengths="sharegpt", slo="relaxed",
                    system="vllm")["capacity"]
        for system in ("vllm", "sarathi"):
            found = simulator.run(*deployment(model), "--lengths", "sharegpt", "--qps", rate,
                                  *scheduling(system, model, "sharegpt", "strict"))
            times = found["stage_times"]
            total = sum(times.values())
            out.append({"model": model, "system": system, "rate": rate,
                        **{k: v / total for k, v in times.items()}})
    return out


def find(rows, **wanted):
    for row in rows:
        if all(row[k] == v for k, v in wanted.items()):
            return row
    raise KeyError(wanted)


def run_all(binary):
    simulator = Simulator(binary)
    started = time.monotonic()
    results = {}
    for name, in_seconds in (("multiples", False), ("seconds", True)):
        capacities = figures_10_and_11(simulator, in_seconds)
        results[name] = {
            "capacities": capacities,
            "figure12": figure_12(simulator, in_seconds),
            "figure13": figure_13(simulator, capacities),
        }
    capacities = results["multiples"]["capacities"]
    results |= {
        "figure14": figure_14(simulator),
        "table4": table_4(simulator),
        "bubbles": bubbles(simulator, capacities),
    }
    results["runs"] = simulator.runs
    results["elapsed_s"] = time.monotonic() - started
    return results


# ---------------------------------------------------------------- what comes out


def ratio(a, b):
    return a / b if b > 0 else float("inf")


def best_ratio(capacities, model, lengths, slo, system):
    """Sarathi-Serve over `system`; None: the largest over all, as "up to" means."""
    best = 0
    for row in capacities:
        if row["system"] != "sarathi" or row["model"] != model:
            continue
        if lengths not in (None, row["lengths"]) or slo not in (None, row["slo"]):
            continue
        other = find(capacities, model=model, lengths=row["lengths"], slo=row["slo"],
                     system=system)
        best = max(best, ratio(row["capacity"], other["capacity"]))
    return best


def figure_12_ratio(results, model, factor):
    rows = [r for r in results["figure12"] if r["model"] == model and r["factor"] == factor]
    best = {s: max(r["capacity"] for r in rows if r["system"] == s) for s in ("vllm", "sarathi")}
    return ratio(best["sarathi"], best["vllm"])


def measured(results, claim):
    if not isinstance(claim, str):
        return best_ratio(results["capacities"], *claim)
    capacities = results["figure13"]["capacity"]
    return {
        "figure12 strict": lambda: figure_12_ratio(results, "mistral-7b", STRICT),
        "figure12 relaxed": lambda: figure_12_ratio(results, "yi-34b", RELAXED),
        "figure13 relaxed": lambda: ratio(capacities["sarathi tp4-pp2 relaxed"],
                                          capacities["vllm tp4-pp2 relaxed"]),
        "figure13 strict": lambda: ratio(capacities["sarathi tp4-pp2 strict"],
                                         capacities["vllm tp4-pp2 strict"]),
        "figure13 tp8": lambda: ratio(capacities["sarathi tp4-pp2 strict"],
                                      capacities["vllm tp8 strict"]),
    }[claim]()


def number(value):
    return "none met it" if value == float("inf") else f"{value:.2f}"


def ratios_table(results):
    lines = ["| capacity of Sarathi-Serve | paper | SLO as multiples | | SLO in seconds | |",
             "|---|---|---|---|---|---|"]
    for text, stated, claim in CLAIMS:
        cells = []
        for name in ("multiples", "seconds"):
            ours = measured(results[name], claim)
            cells.append(number(ours))
            cells.append("" if ours == float("inf") else f"{100 * (ours / stated - 1):+.0f} %")
        lines.append(f"| {text} | {stated} | " + " | ".join(cells) + " |")
    return lines


def capacities_table(results):
    rows = results["multiples"]["capacities"]
    lines = ["| model | lengths | SLO | P99 TBT | Orca | vLLM | Sarathi-Serve | over Orca "
             "| over vLLM |", "|---|---|---|---|---|---|---|---|---|"]
    for model in MODELS:
        for lengths in LENGTHS:
            for slo in SLOS:
                found = {s: find(rows, model=model, lengths=lengths, slo=slo, system=s)
                         for s in SYSTEMS}
                c = {s: found[s]["capacity"] for s in SYSTEMS}
                lines.append(
                    f"| {model} | {lengths} | {slo} | {found['vllm']['slo_ms']:.0f} ms "
                    f"| {c['orca']:.2f} | {c['vllm']:.2f} | {c['sarathi']:.2f} "
                    f"| {number(ratio(c['sarathi'], c['orca']))} "
                    f"| {number(ratio(c['sarathi'], c['vllm']))} |")
    return lines


def figure_12_table(results):
    rows = results["multiples"]["figure12"]
    lines = ["| model | P99 TBT | vLLM 32 | vLLM 64 | vLLM 128 | Sarathi 512 | Sarathi 2048 |",
             "|---|---|---|---|---|---|---|"]
    for model in ("mistral-7b", "yi-34b"):
        for factor in FIGURE12_FACTORS:
            own = [r for r in rows if r["model"] == model and r["factor"] == factor]
            cells = " | ".join(f"{r['capacity']:.2f}" for r in own)
            lines.append(f"| {model} | {own[0]['slo_ms']:.0f} ms | {cells} |")
    return lines


def figure_13_table(results):
    lines = ["| Falcon-180B | decode of 32 at 4k | strict | relaxed | 1 s | 5 s |",
             "|---|---|---|---|---|---|"]
    for name, key, split in (("vLLM, TP-8", "vllm tp8", "tp8"),
                             ("vLLM, TP4-PP2", "vllm tp4-pp2", "tp4-pp2"),
                             ("Sarathi-Serve, TP4-PP2", "sarathi tp4-pp2", "tp4-pp2")):
        cells = [results[kind]["figure13"]["capacity"][f"{key} {slo}"]
                 for kind in ("multiples", "seconds") for slo in SLOS]
        decode = results["multiples"]["figure13"]["decode_ms"][split]
        lines.append(f"| {name} | {decode:.0f} ms | " + " | ".join(f"{c:.2f}" for c in cells) +
                     " |")
    return lines


def figure_14_table(results):
    lines = ["| prompt | 512: measured | simulated | 1,024: measured | simulated "
             "| 2,048: measured | simulated |", "|---|---|---|---|---|---|---|"]
    for length, stated in FIGURE14.items():
        ours = results["figure14"][str(length)]
        cells = " | ".join(f"{a:.2f} | {b:.2f}" for a, b in zip(stated, ours))
        lines.append(f"| {length:,} | {cells} |")
    return lines


def table_4_table(results):
    lines = ["| scheduler | | sharegpt P50 TTFT | P99 TBT | arxiv P50 TTFT | P99 TBT |",
             "|---|---|---|---|---|---|"]
    for policy, stated in TABLE4.items():
        ours = [(f"budget {b}", results["table4"][f"{policy} {b}"]) for b in TABLE4_BUDGETS]
        for who, row in [("paper", stated)] + ours:
            cells = " | ".join(f"{v:.2f}" for v in row)
            lines.append(f"| `{policy}` | {who} | {cells} |")
    return lines


def bubbles_table(results):
    names = [("busy_s", "busy"), ("prefill_lengths_s", "PB1"), ("prefill_decode_s", "PB2"),
             ("context_s", "PB3"), ("link_s", "link"), ("unfilled_s", "nothing to run")]
    lines = ["| model | system | requests/s | " + " | ".join(n for _, n in names) + " |",
             "|---|---|---|" + "---|" * len(names)]
    for row in results["bubbles"]:
        cells = " | ".join(f"{100 * row[k]:.1f} %" for k, _ in names)
        lines.append(f"| {row['model']} | {SYSTEMS[row['system']]} | {row['rate']:.2f} "
                     f"| {cells} |")
    return lines


TABLES = {
    "ratios": ratios_table,
    "capacities": capacities_table,
    "figure12": figure_12_table,
    "figure13": figure_13_table,
    "figure14": figure_14_table,
    "table4": table_4_table,
    "bubbles": bubbles_table,
}


def write_page(path, results):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for name, table in TABLES.items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
        if begin not in text:
            sys.exit(f"{path}: has no line {begin.strip()}")
        head, tail = text.split(begin, 1)
        tail = tail[tail.index(end):]
        text = head + begin + "\n".join(table(results)) + "\n" + tail
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def plot_capacities(plt, results, folder):
    rows = results["multiples"]["capacities"]
    figure, axes = plt.subplots(2, 4, figsize=(11, 4.6))
    colours = {"orca": "#b0b0b0", "vllm": "#5b8db8", "sarathi": "#d1603d"}
    for column, model in enumerate(MODELS):
        for line, lengths in enumerate(LENGTHS):
            axis = axes[line][column]
            for i, system in enumerate(SYSTEMS):
                heights = [find(rows, model=model, lengths=lengths, slo=slo,
                                system=system)["capacity"] for slo in SLOS]
                axis.bar([x + 0.27 * (i - 1) for x in (0, 1)], heights, 0.25,
                         color=colours[system], label=SYSTEMS[system])
            axis.set_xticks((0, 1), tuple(SLOS))
            axis.set_title(f"{model}, {lengths}", fontsize=9)
            axis.tick_params(labelsize=8)
            if column == 0:
                axis.set_ylabel("requests per second", fontsize=8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="upper center", ncol=3, fontsize=8,
                  frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(f"{folder}/sarathi-capacity.png", dpi=80)


def plot_tradeoff(plt, results, folder):
    figure, axes = plt.subplots(1, 2, figsize=(8, 3))
    for axis, model in zip(axes, ("mistral-7b", "yi-34b")):
        rows = [r for r in results["multiples"]["figure12"] if r["model"] == model]
        for system, batch, budget in sorted({(r["system"], r["batch"], r["budget"] or 0)
                                             for r in rows}):
            own = [r for r in rows if (r["system"], r["batch"], r["budget"] or 0) ==
                   (system, batch, budget)]
            label = f"vLLM {batch}" if system == "vllm" else f"Sarathi-Serve {budget}"
            axis.plot([r["slo_ms"] / 1e3 for r in own], [r["capacity"] for r in own],
                      "--" if system == "vllm" else "-", marker="o", markersize=3, label=label)
        axis.set_title(model, fontsize=9)
        axis.set_xlabel("P99 TBT within (s)", fontsize=8)
        axis.set_ylabel("requests per second", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(f"{folder}/sarathi-tradeoff.png", dpi=80)


def write_images(folder, results):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plot_capacities(plt, results, folder)
    plot_tradeoff(plt, results, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sluice", default="build/release/apps/sluice", help="the binary to run")
    parser.add_argument("--results", help="write what the simulations gave, as JSON")
    parser.add_argument("--from", dest="source", help="results of before: run nothing")
    parser.add_argument("--page", help="write the tables into this page")
    parser.add_argument("--images", help="write the plots into this folder")
    arguments = parser.parse_args()
    if arguments.source:
        with open(arguments.source, encoding="utf-8") as file:
            results = json.load(file)
    else:
        results = run_all(arguments.sluice)
    if arguments.results:
        with open(arguments.results, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    if arguments.page:
        write_page(arguments.page, results)
    if arguments.images:
        write_images(arguments.images, results)
    for line in ratios_table(results):
        print(line)


if __name__ == "__main__":
    main()
