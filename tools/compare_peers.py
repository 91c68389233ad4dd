#!/usr/bin/env python3
"""Compares Sluice with llama.cpp, OpenVINO GenAI and vLLM on this machine's CPU: the same random
checkpoint, the same work, in turns, medians. Writes the table of docs/performance.md, and the
picture of it.

    tools/install.sh peers
    tools/compare_peers.py build/sluice [--rounds 5] [--only REGEX] [--engines NAME,NAME] [--quick]

Rows are MODEL/FORM/JOB, such as 0.6b/bf16/prefill-512 or 1b/8bit/decode-16; --list prints them.
Figures are added to a file of results, so rows may be measured one after the other (--only);
--fresh forgets what it holds. A peer that is missing or fails is named with the reason, and the
others are measured.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import peer_engines  # noqa: E402
import peer_http  # noqa: E402
import peer_picture  # noqa: E402
import peer_table  # noqa: E402
from peer_engines import Unavailable  # noqa: E402


class Comparison:
    """One run: its samples are saved after each figure."""

    def __init__(self, arguments, engines, samples):
        self.a, self.engines, self.samples = arguments, engines, samples
        self.facts = {}

    def save(self):
        data = {**self.samples.as_data(), "facts": self.facts}
        with open(self.a.results + ".part", "w", encoding="utf-8") as out:
            json.dump(data, out, indent=1)
        os.rename(self.a.results + ".part", self.a.results)

    def note_limits(self):
        limits = peer_engines.limits(self.a.ops_bench, self.a.threads)
        if limits:
            self.samples.limits.append(limits)
            self.save()

    def fail(self, keys, engine, error):
        print(f"  {engine.name}: {error}", file=sys.stderr)
        for key in keys:
            self.samples.fail(key, engine.name, str(error))

    def checkpoint(self, model):
        name = peer_table.MODELS[model][0]
        path = os.path.join(self.a.peers, "models", name)
        if not os.path.exists(os.path.join(path, "model.safetensors")):
            env = {"SLUICE_PYTHON": os.path.join(self.a.peers, "llama", "bin", "python")}
            peer_engines.run([os.path.join(HERE, "make_checkpoint"), name, path], 600, env)
        return path

    def opened(self, model, form, keys, begin):
        """The engines that could be prepared, each with what begin(engine, path) gives."""
        started = []
        for engine in self.engines:
            try:
                if form not in engine.forms:
                    raise Unavailable(f"no weights in {peer_table.FORMS[form]}")
                path = engine.prepare(self.checkpoint(model), form)
                print(f"  starting {engine.name}", file=sys.stderr)
                subject = begin(engine, path)
                subject.pause()
                started.append((engine, subject))
            except (Unavailable, OSError) as error:
                self.fail(keys, engine, error)
        return started

    def measure_in_turns(self, started, keys, measure):
        """`measure(subject, key, seed)` gives a figure for each of some rows: {key: value}. Engines
        whose turn it is not are paused: some use the cores without work."""
        for number in range(self.a.rounds):
            for key in keys:
                turn = number % max(1, len(started))
                todo = started[turn:] + started[:turn]
                for engine, subject in todo:
                    try:
                        with resumed(subject):
                            found = measure(subject, key, self.seed())
                    except (Unavailable, OSError, ValueError, KeyError) as error:
                        self.fail([key], engine, error)
                        continue
                    for row, value in found.items():
                        self.add(row, number, engine, value)

    def seed(self):
        self.seeds = getattr(self, "seeds", 100) + 10
        return self.seeds

    def add(self, key, number, engine, value):
        rounds = self.samples.rounds.setdefault(key, [])
        while len(rounds) <= self.first[key] + number:
            self.samples.begin_round(key)
        rounds[self.first[key] + number][engine.name] = value
        self.samples.missing.get(key, {}).pop(engine.name, None)
        print(f"  {key} {engine.name}: {peer_table.three_digits(value)}", file=sys.stderr)
        self.save()

    def run_offline(self, model, form, keys):
        started = self.opened(model, form, keys, lambda engine, path: warmed(
            engine.open(path, form), lambda subject: subject.warm()))
        try:
            self.measure_in_turns(started, keys, lambda subject, key, _: {
                key: subject.measure(job_of(key, self.a.quick))})
        finally:
            stop_all(started)

    def run_starts(self, model, keys):
        """Each figure starts a server and ends it: no other one may run beside it."""
        started = self.opened(model, "bf16", keys, lambda engine, path: peer_engines.Commands(
            lambda seed: peer_http.start(engine, path, seed)))
        self.measure_in_turns(started, keys,
                              lambda subject, key, seed: {key: subject.measure(seed)})

    def run_http(self, model, keys):
        starts = [key for key in keys if key.endswith("/start")]
        keys = [key for key in keys if key not in starts]
        if starts:
            self.run_starts(model, starts)
        if keys:
            self.run_servers(model, keys)

    def run_servers(self, model, keys):
        started = self.opened(model, "bf16", keys, lambda engine, path: warmed(
            engine.serve(path, *engine.warm_options),
            lambda server: peer_http.warm(server, self.seed())))
        kinds = [kind for kind in ("gap", "chats")
                 if any(key.endswith(pair) for key in keys for pair in HTTP_PAIRS[kind])]

        def measure(server, kind, seed):
            if kind == "gap":
                values = peer_http.Stall(server, seed).measure()
            else:
                lengths, count = ("fixed:128,32", 16) if self.a.quick else ("fixed:512,128", 32)
                values = peer_http.chats(self.a.sluice, server, lengths, count, seed)
            return dict(zip((f"{model}/http/{job}" for job in HTTP_PAIRS[kind]), values))

        try:
            self.measure_in_turns(started, kinds, measure)
        finally:
            stop_all(started)

    def run(self, keys):
        self.first = {key: len(self.samples.rounds.get(key, []))
                      for key in peer_table.all_keys()}
        for model in peer_table.MODELS:
            for form in (*peer_table.FORMS, "http"):
                mine = [key for key in keys if key.startswith(f"{model}/{form}/")]
                if not mine:
                    continue
                print(f"{model}, {form}", file=sys.stderr)
                if form == "http":
                    self.run_http(model, mine)
                else:
                    self.run_offline(model, form, mine)
                self.save()


HTTP_PAIRS = {"gap": ("gap", "ttft"), "chats": ("chats", "itl")}


def warmed(subject, warm):
    """Returns a subject after its warm-up, or stops it if that fails."""
    try:
        warm(subject)
    except (OSError, Unavailable):
        subject.stop()
        raise
    return subject


@contextlib.contextmanager
def resumed(subject):
    subject.resume()
    try:
        yield
    finally:
        subject.pause()


def stop_all(started):
    for _, subject in started:
        subject.stop()


def job_of(key, quick):
    kind, count = key.split("/")[2].split("-")
    if kind == "prefill":
        return {"kind": "prefill", "tokens": int(count)}
    return {"kind": "decode", "streams": int(count), "prompt": 32, "tokens": 16 if quick else 64}


def cpu_model():
    with open("/proc/cpuinfo", encoding="ascii") as lines:
        found = {}
        for line in lines:
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    named = found.get("model name", "unknown")
    return f"{named}, family {found.get('cpu family')}, model {found.get('model')}"


def facts_of(arguments, engines):
    versions = []
    for engine in engines:
        try:
            versions.append(f"{engine.name} {engine.version()}")
        except (Unavailable, OSError) as error:
            versions.append(f"{engine.name}: {error}")
    command = " ".join(["tools/compare_peers.py", *work_of(arguments)])
    return {"machine": f"{cpu_model()}, {arguments.threads} threads",
            "date": datetime.date.today().isoformat(), "versions": "; ".join(versions),
            "command": f"`{command}`"}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.dirname(HERE)
    peers = os.path.join(root, "build", "peers")
    parser.add_argument("sluice", nargs="?", default=os.path.join(root, "build", "sluice"))
    parser.add_argument("--peers", default=peers)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="", metavar="REGEX", help="of rows")
    parser.add_argument("--engines", default="", metavar="NAMES",
                        help="Sluice, llama.cpp, OpenVINO, vLLM; default: all")
    parser.add_argument("--quick", action="store_true", help="one round, of less work each")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", default=os.path.join(peers, "results.json"))
    parser.add_argument("--page", default=os.path.join(root, "docs", "performance.md"))
    parser.add_argument("--ops-bench", metavar="FILE",
                        default=os.path.join(root, "build", "release", "bench", "ops_bench"))
    a = parser.parse_args(argv)
    a.rounds = a.rounds or (1 if a.quick else 5)
    return a


def work_of(a):
    """The options that say what was measured; the others say where things lie."""
    words = []
    if a.only:
        words.append(f"--only '{a.only}'")
    if a.engines:
        words.append(f"--engines {a.engines}")
    return words + (["--quick"] if a.quick else []) + [f"--rounds {a.rounds}"]


def read_results(path, fresh):
    if fresh or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main(argv):
    a = parse(argv)
    if a.list:
        print("\n".join(peer_table.all_keys()))
        return 0
    keys = [key for key in peer_table.all_keys() if re.search(a.only, key)]
    if not keys:
        raise SystemExit(f"compare_peers: no row matches --only {a.only}; see --list")
    os.makedirs(os.path.join(a.peers, "models"), exist_ok=True)
    engines = peer_engines.all_engines(a.peers, a.threads, os.path.abspath(a.sluice))
    names = [engine.name for engine in engines]
    wanted = a.engines.split(",") if a.engines else names
    unknown = set(wanted) - set(names)
    if unknown:
        raise SystemExit(f"compare_peers: --engines {','.join(sorted(unknown))}: one of "
                         + ", ".join(names))
    before = read_results(a.results, a.fresh)
    comparison = Comparison(a, [e for e in engines if e.name in wanted],
                            peer_table.Samples(before))
    comparison.facts = facts_of(a, engines)
    comparison.note_limits()
    comparison.run(keys)
    comparison.note_limits()
    facts = {**comparison.facts, "limits, before and after each part":
             peer_table.limits_line(comparison.samples.limits)}
    part = peer_table.page_part(comparison.samples, names, facts.items())
    print(part)
    if os.path.exists(a.page):
        peer_table.write_page(a.page, part)
        peer_picture.write_picture(a.page, os.path.join(os.path.dirname(a.page), "images",
                                                        "peers.svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
