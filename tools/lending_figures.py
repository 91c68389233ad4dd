#!/usr/bin/env python3
"""Two figures of memory that is lent between processes (docs/elastic-memory.md), measured on this
machine.

    tools/lending_figures.py build/release/apps/sluice models/demo [--figure burst|reclaim|both]
        [--whole 1GiB] [--least 64MiB] [--burst 45] [--prompt 400] [--output 200] [--lent 1GiB]
        [--streams 4] [--stream-prompt 400] [--stream-tokens 1000] [--pairs 3] [--reclaims 10]
        [--window 2] [--watch 120] [--first halves|lending] [--settle] [--serve=OPTIONS] [--json]

burst: two servers have --whole together. --burst requests come at once to one of them, while the
other has one client. The same with fixed halves and with lending, --pairs times, in turns. The
figure is the P99 TTFT of the burst, lending to halves (goal 0.5), and the mean answer time of the
other's client (goal 1.05). With --watch each run ends when every request of the burst has its first
token, but not before so many seconds: TTFT is known then, and the rest of long answers is left out.

reclaim: another program lends --lent to a server with --least of its own. --streams streams run,
which --least has room for, and --burst requests fill all of it. When the burst is over, its blocks
are cached, and the program takes everything back; --reclaims times with one server. The figures are
the seconds until it has it (goal 1), by how much the server's memory shrank, and the P99 of the
streams' times between tokens in three windows: the --window seconds before, the time until all is
back, and the rest of --window seconds after it began; and that of the last two together to that
before (goal 1.5). Before each reclaim come windows of the same length in which nothing happens. The
gaps of all windows of a kind are one sample. Gaps during which a stream's next prompt was computed
do not count. --json also has the longest gaps of each window, with their times.

With --settle the servers are idle until their weights have moved into large pages, before anything
is measured; the model must be large enough for that. Both figures tell the share of the time in
which the host of a virtual machine took the cores away ("steal" of /proc/stat).

Nothing else should run beside it. Prompts are random token ids, so that nothing is shared.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from ready_server import ReadyServer, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "examples", "lending"))
from sluice_lend import Lender  # pylint: disable=wrong-import-position  # noqa: E402

TOKEN = "0123456789abcdef0123456789abcdef"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
EXPIRY_S = 2
PATIENCE_S = 600
WINDOWS = ("before", "during", "after")  # around a reclaim


def size(text):
    found = re.fullmatch(r"(\d+)([KMG]iB)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no size such as 64MiB")
    return int(found.group(1)) * UNITS[found.group(2) or ""]


def p99(values):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def core_seconds():
    """Core seconds since the start that the host of a virtual machine took, and all of them."""
    with open("/proc/stat", encoding="ascii") as stream:
        ticks = [int(word) for word in stream.readline().split()[1:9]]
    return ticks[7] / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


def stolen(before, after):
    """Between two core_seconds(): the share of the time that the host took."""
    return (after[0] - before[0]) / max(after[1] - before[1], 1e-9)


class Stream(threading.Thread):
    """One streamed answer, and when each of its tokens came; with `again` one after the other until
    stop(). Starts at once."""

    def __init__(self, port, model, prompt, output, again=False):
        super().__init__(daemon=True)
        self.port = port
        self.body = json.dumps({"model": model, "prompt": prompt, "max_tokens": output,
                                "ignore_eos": True, "stream": True})
        self.again = again
        self.left = False
        self.sent = time.monotonic()
        self.answers = []  # times of tokens, of each answer
        self.error = None
        self.start()

    @property
    def times(self):
        return self.answers[0] if self.answers else []

    def run(self):
        try:
            self.call()
            while self.again and not self.error:
                self.call()
        except OSError as error:
            self.error = error

    def call(self):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        link.request("POST", "/v1/completions", self.body, {"Content-Type": "application/json"})
        answer = link.getresponse()
        if answer.status != 200:
            self.error = answer.read().decode()
            return
        times = []
        for line in answer:
            if self.left:
                break
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
                if len(times) == 1:
                    self.answers.append(times)
        link.close()

    def had_tokens_since(self, start):
        return any(times and times[-1] > start for times in list(self.answers))

    def leave(self):
        """Closes the connection at the next token."""
        self.again = False
        self.left = True

    def done(self):
        self.join(PATIENCE_S)
        if self.error or not self.times:
            raise SystemExit(f"a request failed: {self.error or 'no token came'}")
        return self

    def prompts(self):
        """From the end of each answer to the first token of the next one."""
        answers = list(self.answers)
        return [(one[-1], next_one[0]) for one, next_one in zip(answers, answers[1:])]

    def gaps(self, start, end, prompts):
        """The times of two tokens of an answer of which the later one came from `start` to `end`,
        except those between which a prompt was computed: its chunk makes a step longer, with or
        without a reclaim."""
        return [(before, after) for times in list(self.answers)
                for before, after in zip(times, times[1:])
                if start <= after < end and not any(first < after and before < last
                                                    for first, last in prompts)]


def metric(port, name):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.request("GET", "/metrics")
    text = link.getresponse().read().decode()
    link.close()
    return float(re.search(name + r"(?:{[^}]*})? ([0-9.e+]+)", text).group(1))


def await_metric(port, name, test):
    deadline = time.monotonic() + PATIENCE_S
    while not test(value := metric(port, name)):
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} stays {value}")
        time.sleep(0.02)


@contextlib.contextmanager
def coordinator(sluice, folder, budget):
    """Yields the options of a server that lends, without its memory, and the URL."""
    token = os.path.join(folder, "token")
    with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w",
              encoding="ascii") as out:
        out.write(TOKEN + "\n")
    port = free_port()
    command = [sluice, "coordinator", "--port", str(port), "--token-file", token, "--expiry",
               str(EXPIRY_S)]
    if budget:
        command += ["--budget", f"cpu={budget}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            yield ["--lend", url, "--lend-token-file", token], url
        finally:
            process.terminate()


class Figures:
    def __init__(self, options):
        self.options = options
        self.sluice = os.path.abspath(options.sluice)
        self.model = os.path.basename(options.model.rstrip("/"))
        self.random = random.Random(options.seed)

    def serve(self, memory, more=()):
        return ReadyServer([self.sluice, "serve", self.options.model, "--max-num-seqs", "256",
                            "--max-model-len", str(self.options.context), "--kv-cache-memory",
                            memory, *self.options.serve.split(), *more])

    def prompt(self, tokens):
        return [self.random.randrange(10, self.options.ids) for _ in range(tokens)]

    def stream(self, port, output=None):
        return Stream(port, self.model, self.prompt(self.options.prompt),
                      output or self.options.output)

    def settle(self, server):
        """Weights move into large pages while idle. The log says when they have, or stay."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(" weights: " in line and " pages" in line for line in server.said):
            if time.monotonic() > deadline:
                raise SystemExit("the log does not say that weights have moved; omit --settle for "
                                 "a small model")
            time.sleep(0.1)

    def burst_on(self, busy, other):
        """P99 TTFT of the burst, the times of the other's answers during it, and the share of the
        cores that the host took meanwhile."""
        for server in (busy, other):
            self.stream(server.port, 8).done()
            if self.options.settle:
                self.settle(server)
        light = []
        prompts = [self.prompt(self.options.prompt) for _ in range(self.options.burst)]
        start = time.monotonic()
        cores = core_seconds()
        burst = [Stream(busy.port, self.model, each, self.options.output) for each in prompts]
        while any(each.is_alive() for each in burst):
            one = self.stream(other.port, 20).done()
            light.append(one.times[-1] - one.sent)
            started = all(each.times for each in burst)
            if self.options.watch and started and time.monotonic() > start + self.options.watch:
                for each in burst:
                    each.leave()
                break
            time.sleep(0.1)
        ttft = [each.done().times[0] - each.sent for each in burst]
        taken = stolen(cores, core_seconds())
        print(f"burst: first tokens after {min(ttft):.1f} s to {max(ttft):.1f} s, half of them "
              f"after {statistics.median(ttft):.1f} s; {len(light)} answers of the other, mean "
              f"{statistics.mean(light):.2f} s, {min(light):.2f} s to {max(light):.2f} s; the host "
              f"took {taken:.1%} of the cores", file=sys.stderr)
        return {"p99_ttft_s": p99(ttft), "other_s": light, "stolen": taken}

    def halves(self, _folder):
        half = str(self.options.whole // 2)
        with self.serve(half) as busy, self.serve(half) as other:
            return self.burst_on(busy, other)

    def lending(self, folder):
        least = self.options.least
        budget = self.options.whole - 2 * least
        with coordinator(self.sluice, folder, budget) as (lend, _):
            memory = f"{least}-{least + budget}"
            with self.serve(memory, lend) as busy, self.serve(memory, lend) as other:
                for server in (busy, other):
                    await_metric(server.port, "kv_lending_joined", lambda value: value == 1)
                time.sleep(EXPIRY_S + 0.5)  # nothing is granted for one expiry after a start
                return self.burst_on(busy, other)

    def burst(self, folder):
        pairs = []
        for turn in range(self.options.pairs):
            ways = [("halves", self.halves), ("lending", self.lending)]
            if (turn % 2 == 1) != (self.options.first == "lending"):
                ways.reverse()
            found = {name: way(folder) for name, way in ways}
            halves, lending = found["halves"], found["lending"]
            ttft = lending["p99_ttft_s"] / halves["p99_ttft_s"]
            other = statistics.mean(lending["other_s"]) / statistics.mean(halves["other_s"])
            pairs.append({"ttft_ratio": ttft, "other_ratio": other, **found})
            print(f"pair {turn + 1}: P99 TTFT {ttft:.2f}, the other's answers {other:.2f} of "
                  "halves'", file=sys.stderr)
        return pairs

    def borrow_all(self, server, lender):
        """The server borrows all that the program lends, and fills it with the KV of a burst, which
        stays cached."""
        most = self.options.least + self.options.lent
        lender.offer(self.options.lent)
        burst = [self.stream(server.port) for _ in range(self.options.burst)]
        while metric(server.port, "kv_limit_bytes") < most:
            if not any(each.is_alive() for each in burst):
                raise SystemExit("the burst did not need all of it; give a larger --burst")
            time.sleep(0.02)
        for each in burst:
            each.done()

    def span(self, act):
        """Windows around act(): the times when it began and ended, and core_seconds() at the begin
        and the end of each window."""
        cores = [core_seconds()]
        time.sleep(self.options.window)
        cores.append(core_seconds())
        begin = time.monotonic()
        act()
        end = time.monotonic()
        cores.append(core_seconds())
        time.sleep(max(0.0, begin + self.options.window - end))
        cores.append(core_seconds())
        return begin, end, cores

    def reclaim(self, folder):
        least, lent = self.options.least, self.options.lent
        spans = {"reclaim": [], "control": []}
        streams, shrunk = [], []
        with coordinator(self.sluice, folder, 0) as (lend, url), \
                Lender(url, TOKEN, "program") as lender, \
                self.serve(f"{least}-{least + lent}", lend) as server:
            lender.offer(lent)
            await_metric(server.port, "kv_lending_joined", lambda value: value == 1)
            for turn in range(self.options.reclaims):
                if self.options.settle:
                    self.settle(server)
                if not streams:
                    streams = [Stream(server.port, self.model,
                                      self.prompt(self.options.stream_prompt),
                                      self.options.stream_tokens, again=True)
                               for _ in range(self.options.streams)]
                self.borrow_all(server, lender)
                over = time.monotonic()
                while not all(each.had_tokens_since(over) for each in streams):
                    if any(each.error for each in streams):
                        raise SystemExit(f"a stream failed: {[each.error for each in streams]}")
                    time.sleep(0.02)
                before = pss(server.process.pid)
                pause = took[-1] if turn else 0.3
                spans["control"].append(self.span(lambda pause=pause: time.sleep(pause)))
                spans["reclaim"].append(self.span(lender.take_back))
                shrunk.append(before - pss(server.process.pid))
                time.sleep(0.5)  # a prompt that is being computed belongs to a window, too
                found = {name: self.windows(streams, spans[name]) for name in spans}
                took = [end - begin for begin, end, _ in spans["reclaim"]]
                so_far = "" if None in found.values() else (
                    f"; P99 TBT of all so far {found['reclaim']['tbt_ratio']:.2f}, without one "
                    f"{found['control']['tbt_ratio']:.2f}")
                print(f"reclaim {turn + 1}: {took[-1]:.2f} s, the server has "
                      f"{shrunk[-1] >> 20} MiB less{so_far}", file=sys.stderr)
            for each in streams:
                each.leave()
            for each in streams:
                each.done()
        if None in found.values():
            raise SystemExit("the streams had no gaps in one of the windows; give a larger "
                             "--window")
        return {"lent_bytes": lent, "shrunk_bytes": shrunk, "seconds": took, **found}

    def windows(self, streams, spans):
        """The streams' gaps around all spans of a kind, as one sample for each window; None: a
        window has none."""
        window = self.options.window
        prompts = [prompt for each in streams for prompt in each.prompts()]
        found = {name: [] for name in WINDOWS}
        shares = {name: [] for name in WINDOWS}
        for begin, end, cores in spans:
            bounds = (begin - window, begin, end, max(begin + window, end))
            for at, name in enumerate(WINDOWS):
                found[name] += [gap for each in streams
                                for gap in each.gaps(bounds[at], bounds[at + 1], prompts)]
                shares[name].append(stolen(cores[at], cores[at + 1]))
        gaps = {name: [later - earlier for earlier, later in found[name]] for name in WINDOWS}
        if not all(gaps.values()):
            return None
        return {**{f"gaps_{name}": len(gaps[name]) for name in WINDOWS},
                **{f"p99_tbt_{name}_s": p99(gaps[name]) for name in WINDOWS},
                **{f"longest_{name}_s": max(gaps[name]) for name in WINDOWS},
                **{f"stolen_{name}": statistics.mean(shares[name]) for name in WINDOWS},
                **{f"slowest_{name}": sorted(found[name], key=lambda gap: gap[0] - gap[1])[:20]
                   for name in WINDOWS},
                "spans": [(begin, end) for begin, end, _ in spans],
                "during_ratio": p99(gaps["during"]) / p99(gaps["before"]),
                "tbt_ratio": p99(gaps["during"] + gaps["after"]) / p99(gaps["before"])}


def pss(pid):
    """Bytes of memory that are the process's, as the kernel counts them."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as stream:
        return next(int(line.split()[1]) << 10 for line in stream if line.startswith("Pss:"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("--figure", choices=("burst", "reclaim", "both"), default="both")
    parser.add_argument("--whole", type=size, default=size("1GiB"))
    parser.add_argument("--least", type=size, default=size("64MiB"))
    parser.add_argument("--lent", type=size, default=size("1GiB"))
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--stream-prompt", type=int, default=400, help="tokens")
    parser.add_argument("--stream-tokens", type=int, default=1000)
    parser.add_argument("--burst", type=int, default=45, help="requests at once")
    parser.add_argument("--prompt", type=int, default=400, help="tokens")
    parser.add_argument("--output", type=int, default=200, help="tokens")
    parser.add_argument("--watch", type=float, default=0.0, help="seconds, of burst; 0: to its end")
    parser.add_argument("--first", choices=("halves", "lending"), default="halves",
                        help="of the first pair; the next one begins with the other")
    parser.add_argument("--settle", action="store_true", help="wait for weights in large pages")
    parser.add_argument("--serve", default="", help="more options of the servers")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--ids", type=int, default=256, help="token ids of prompts are below")
    parser.add_argument("--pairs", type=int, default=3, help="of burst")
    parser.add_argument("--reclaims", type=int, default=10)
    parser.add_argument("--window", type=float, default=2.0, help="seconds, of reclaim")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the servers
    figures = Figures(options)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("burst", "reclaim"):
            if options.figure in (name, "both"):
                results[name] = getattr(figures, name)(folder)
    if options.json:
        print(json.dumps(results))
        return
    if "burst" in results:
        pairs = results["burst"]
        print("P99 TTFT of the burst, lending to halves (goal 0.5): " +
              ", ".join(f"{each['ttft_ratio']:.2f}" for each in pairs))
        print("the other's mean answer, lending to halves (goal 1.05): " +
              ", ".join(f"{each['other_ratio']:.2f}" for each in pairs))
    if "reclaim" in results:
        found = results["reclaim"]
        print(f"{found['lent_bytes'] >> 20} MiB back (goal: 1 s for 1 GiB) after " +
              ", ".join(f"{seconds:.2f} s" for seconds in found["seconds"]))
        print("the server's memory shrank by " +
              ", ".join(f"{size >> 20}" for size in found["shrunk_bytes"]) + " MiB")
        for name, what in (("reclaim", "of a reclaim (goal 1.5)"), ("control", "without one")):
            kind = found[name]
            print(f"P99 TBT {what}: {kind['tbt_ratio']:.2f} times that before, until all is back "
                  f"{kind['during_ratio']:.2f}; " +
                  ", ".join(f"{each} {kind[f'p99_tbt_{each}_s'] * 1000:.1f} ms of "
                            f"{kind[f'gaps_{each}']} gaps, the longest "
                            f"{kind[f'longest_{each}_s'] * 1000:.1f} ms, the host took "
                            f"{kind[f'stolen_{each}']:.1%}" for each in WINDOWS))


if __name__ == "__main__":
    main()
