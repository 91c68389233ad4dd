#!/usr/bin/env python3
"""The simulator against the real engine, on one machine in one run.

    tools/simulator_check.py MODEL TRACE [--sluice build/sluice] [--requests 120]
        [--length-scale 0.25] [--rate-scale 0.1] [--time-limit 60] [-- ENGINE OPTIONS]

Measures the machine's profile (`sluice profile`), serves the model, sends it the first requests of
a trace with lengths and rate scaled to the machine (`sluice bench serve`), simulates the same
requests with the profile (`sluice simulate --profile`), and prints both beside each other.
docs/simulator.md has the figures. The machine should have nothing else to do.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

FIGURES = [("median", "ttft"), ("p99", "ttft"), ("median", "itl"), ("p99", "itl"),
           ("median", "tpot"), ("p99", "tpot"), ("median", "e2el"), ("p99", "e2el")]
LIMITS = {"median": 10, "p99": 25}  # percent


def run(command):
    """Runs it with its progress on our stderr; its standard output."""
    print("$", " ".join(command), file=sys.stderr)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def serve(command):
    """Starts a server; (process, base URL) once it is ready."""
    print("$", " ".join(command), file=sys.stderr)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        ready = re.match(r"ready: (http://\S+)", line)
        if ready:
            return process, ready.group(1)
    raise SystemExit(f"the server ended with {process.wait()} before it was ready")


def measure(options, folder):
    """(measured, simulated): the JSON objects of bench serve and simulate."""
    profile = os.path.join(folder, "profile.json")
    run([options.sluice, "profile", options.model, "--output", profile, "--time-limit",
         str(options.time_limit), *options.engine])
    workload = ["--trace", options.trace, "--too-long", "shorten",
                "--length-scale", str(options.length_scale),
                "--rate-scale", str(options.rate_scale)]
    process, url = serve([options.sluice, "serve", options.model, "--port", "0",
                          "--access-log", "/dev/null", *options.engine])
    try:
        measured = json.loads(run([options.sluice, "bench", "serve", "--base-url", url,
                                   "--ignore-eos", "--num-prompts", str(options.requests),
                                   "--json", *workload]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    simulated = json.loads(run([options.sluice, "simulate", "--profile", profile, "--num-requests",
                                str(options.requests), "--json", *workload]))
    return measured, simulated


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("trace")
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--length-scale", type=float, default=0.25)
    parser.add_argument("--rate-scale", type=float, default=0.1)
    parser.add_argument("--time-limit", type=int, default=60, help="seconds of profiling")
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    options.engine = arguments[split + 1:]
    with tempfile.TemporaryDirectory() as folder:
        measured, simulated = measure(options, folder)
    print("| figure | measured | simulated | difference | goal |\n|---|---|---|---|---|")
    missed = 0
    for statistic, latency in FIGURES:
        key = f"{statistic}_{latency}_ms"
        real, virtual = measured[key], simulated[key]
        percent = 100 * (virtual / real - 1)
        limit = LIMITS[statistic]
        missed += abs(percent) > limit
        print(f"| {key} | {real:.1f} | {virtual:.1f} | {percent:+.1f} % | {limit} % |")
    print(f"{measured['completed']} requests, {missed} of {len(FIGURES)} figures beyond their goal")


if __name__ == "__main__":
    main()
