#!/usr/bin/env python3
"""Runs `sluice gateway` on calls of many functions, as real processes (docs/serverless.md):

- ablation: the same bursty calls with all policies, and without sharing, pre-loading, offloading
  and batching (#1 to #3 of ServerlessLoRA's section 6.6)
- overload: calls at a rate that the machine sustains, and at three times that rate
- flood: tenants at their share of that rate, beside one that is inside its share, and beside the
  same one with many times its share
- line: the time until the last first token of N calls at once, beside equation 2, whose line counts
  calls, and beside a line that counts their tokens

    tools/gateway_study.py build/release/apps/sluice models/demo [--other DIR] [--seconds 20]
        [--rounds 1] [--parts ablation,overload,flood,line] [--variants "NAME; NAME"] [--quick]

`--other` is a second checkpoint (`tools/make_checkpoint llama-1b DIR`): the ablation then has four
functions of each. A function is a tenant's access to a model. The client shares the cores with the
gateway, so times are ratios at best; the machine should have nothing else to do. The variants take
turns in each round, in an order that moves on by one; ratios are those of one round's runs. A call
that ends with another status than 200 or 429 is told, and counted as failed.
"""

import argparse
import asyncio
import hashlib
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time

from ready_server import ReadyServer

ADMIN = "sk-study-admin"
IDLE_S = 2
COV = 6
# Sections of the functions file that make each variant, and options of the gateway.
FULL = ("", ["--warm-workers", "1"])
VARIANTS = {
    "all policies": FULL,
    "no sharing": FULL,
    "no pre-loading": ("preload = false\n", ["--warm-workers", "0"]),
    "no offloading": ("host = 1\n", ["--warm-workers", "0"]),  # nothing idle stays
    "batches #1 (1, 0 ms)": FULL,
    "batches #2 (10, 500 ms)": FULL,
    "batches #3 (20, 1000 ms)": FULL,
}
FIXED = {"batches #1 (1, 0 ms)": (1, 0), "batches #2 (10, 500 ms)": (10, 500),
         "batches #3 (20, 1000 ms)": (20, 1000)}


def digest(key):
    return hashlib.sha256(key.encode()).hexdigest()


def key_of(tenant):
    return f"sk-study-{tenant}"


def name_of(model):
    """The backbone's name: that of its directory."""
    return os.path.basename(os.path.abspath(model))


class Config:
    """A functions file: tenant i calls the model at models[i]."""

    def __init__(self, models, slo_ms=600_000, sharing=True, fixed=None, memory="",
                 idle_s=IDLE_S):
        self.names = []
        lines = []
        if fixed:
            lines += ['batching = "fixed"', f"batch_size = {fixed[0]}",
                      f"batch_delay_ms = {fixed[1]}"]
        lines += ["[memory]", memory, f'[admin]\nkey_sha256 = "{digest(ADMIN)}"',
                  f"[defaults]\nidle_s = {idle_s}\nttft_slo_ms = {slo_ms}"]
        backbones = {}
        for tenant, model in enumerate(models):
            lines.append(f'[[tenant]]\nname = "t{tenant}"\nkey_sha256 = '
                         f'"{digest(key_of(tenant))}"')
            name = name_of(model) if sharing else f"{name_of(model)}-{tenant}"
            if backbones.setdefault(name, (model, []))[0] != model:
                raise ValueError(f"two directories have the name {name}")
            backbones[name][1].append(f"t{tenant}")
            self.names.append(name)
        for name, (model, tenants) in backbones.items():
            lines.append(f'[[backbone]]\nname = "{name}"\ndirectory = "{os.path.abspath(model)}"\n'
                         f"tenants = {json.dumps(tenants)}")
        self.text = "\n".join(lines) + "\n"

    def write(self, folder):
        path = os.path.join(folder, "functions.toml")
        with open(path, "w", encoding="ascii") as stream:
            stream.write(self.text)
        return path


class Gateway(ReadyServer):
    def __init__(self, sluice, config, options, folder):
        path = config.write(folder)
        self.usage = os.path.join(folder, f"usage-{time.monotonic_ns()}.db")
        self.names = config.names
        super().__init__([sluice, "gateway", "--config", path, "--usage", self.usage,
                          "--kv-cache-memory", "256MiB", *options])

    def get(self, path):
        """The body of an answer to the operator."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Authorization": "Bearer " + ADMIN})
        body = connection.getresponse().read()
        connection.close()
        return body

    def usage_rows(self):
        return json.loads(self.get("/v1/usage"))["data"]

    def metrics(self):
        return self.get("/metrics").decode()

    def cost(self):
        """All functions' cost, and the platform's."""
        rows = self.usage_rows()
        return (sum(row["cost"] for row in rows if row["tenant"]),
                sum(row["cost"] for row in rows if not row["tenant"]))


class Call:
    """One streamed completion: `ttft` and `e2e` in seconds, or the status that refused it, with
    the answer in `error`. `sent`: when it was really sent, in seconds like `due`; a busy client is
    late."""

    def __init__(self, due, tenant, prompt, output):
        self.due, self.tenant, self.prompt, self.output = due, tenant, prompt, output
        self.status, self.sent, self.ttft, self.e2e, self.error = 0, None, None, None, ""

    async def run(self, gateway, start):
        await asyncio.sleep(max(0.0, start + self.due - time.monotonic()))
        sent = time.monotonic()
        self.sent = sent - start
        # Ids of ordinary tokens; no two prompts begin alike, so none is cached.
        generator = random.Random(f"{self.due} {sent}")
        prompt = [generator.randint(10, 250) for _ in range(self.prompt)]
        body = json.dumps({"model": gateway.names[self.tenant], "prompt": prompt, "stream": True,
                           "max_tokens": self.output, "ignore_eos": True}).encode()
        request = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                   b"Content-Type: application/json\r\nAuthorization: Bearer " +
                   key_of(self.tenant).encode() + b"\r\nContent-Length: " +
                   str(len(body)).encode() + b"\r\n\r\n" + body)
        loop = asyncio.get_running_loop()
        _, answer = await loop.create_connection(lambda: Answer(request), "127.0.0.1",
                                                 gateway.port)
        await answer.ended
        self.e2e = time.monotonic() - sent
        if answer.first:
            self.ttft = answer.first - sent
        text = b"".join(answer.parts)
        self.status = int(text.split(b" ", 2)[1]) if text else 500
        # A stream that has begun, if only with comments, has its error as its last event.
        in_stream = text.rpartition(b'data: {"error"')[2] if b'data: {"error"' in text else b""
        if self.status == 200 and (in_stream or b"data: [DONE]" not in text):
            self.status = 429 if b'"rate_limit_exceeded"' in in_stream else 500
        if self.status != 200:
            self.error = (in_stream or text[-300:] or b"no answer").decode(errors="replace")


class Answer(asyncio.Protocol):
    """Takes a streamed answer with as little work as possible, because the client shares the cores
    with the server that it measures."""

    def __init__(self, request):
        self.request = request
        self.parts = []
        self.first = None  # when the first event came
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.write(self.request)

    def data_received(self, data):
        self.parts.append(data)
        if self.first is None and b"data: {" in data:
            self.first = time.monotonic()

    def connection_lost(self, _):
        self.ended.set_result(None)


async def send(gateway, calls):
    start = time.monotonic() + 0.1
    await asyncio.gather(*(call.run(gateway, start) for call in calls))


def play(gateway, calls):
    asyncio.run(send(gateway, calls))
    broken = failed(calls)
    if broken:
        print(f"\n*** {len(broken)} of {len(calls)} CALLS FAILED, with statuses "
              f"{sorted({call.status for call in broken})}; the first one, of t{broken[0].tenant} "
              f"after {broken[0].e2e:.1f} s: {broken[0].error.strip()}", file=sys.stderr,
              flush=True)
    return [call for call in calls if call.status == 200]


def failed(calls):
    return [call for call in calls if call.status not in (200, 429)]


def poisson(generator, rate, seconds):
    now = generator.expovariate(rate)
    while now < seconds:
        yield now
        now += generator.expovariate(rate)


def bursty_calls(rates, seconds, seed, prompt, output):
    """Gaps of CoV 6 for each function, as many calls as its rate says, so that runs compare."""
    generator = random.Random(seed)
    calls = []
    for tenant, rate in enumerate(rates):
        shape = 1 / COV ** 2
        times = [0.0]
        for _ in range(max(2, round(rate * seconds))):
            times.append(times[-1] + generator.gammavariate(shape, 1))
        longest = max(times[-1], 1e-9)
        calls += [Call(0.98 * seconds * t / longest, tenant, prompt, output) for t in times[1:]]
    return calls


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def table(title, heads, rows):
    print(f"\n{title}\n\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def median_range(values, form="{:.1f}"):
    if not values:
        return "none"
    shown = form.format(statistics.median(values))
    if len(values) == 1:
        return shown
    return f"{shown} ({form.format(min(values))} to {form.format(max(values))})"


# ---------------------------------------------------------------- ablation

def weight_bytes(model):
    return sum(os.path.getsize(os.path.join(model, name)) for name in os.listdir(model)
               if name.endswith(".safetensors"))


MEASURES = {"ttft": "TTFT, ms", "p99": "P99", "e2e": "E2E, ms", "tpot": "TPOT, ms",
            "cost": "bill, 1e-6 $", "platform": "platform, 1e-6 $"}
RATIOS = {"ttft": "TTFT", "p99": "P99", "e2e": "E2E", "tpot": "TPOT", "cost": "bill",
          "product": "bill x E2E"}


def run_variant(options, folder, name, models, budget, calls):
    """The measures of one run, or None if no call was answered."""
    memory, extra = VARIANTS[name]
    if "host" not in memory:
        memory += f"host = {budget}\n"
    config = Config(models, sharing=name != "no sharing", fixed=FIXED.get(name), memory=memory)
    with Gateway(options.sluice, config, [*extra, "--max-functions", "8"], folder) as gateway:
        answered = play(gateway, calls)
        cost, platform = gateway.cost()
    if not answered:
        return None
    e2e = statistics.mean(c.e2e for c in answered)
    return {"ttft": 1e3 * statistics.mean(c.ttft for c in answered),
            "p99": 1e3 * percentile([c.ttft for c in answered], 0.99),
            "e2e": 1e3 * e2e,
            "tpot": 1e3 * statistics.mean((c.e2e - c.ttft) / (c.output - 1) for c in answered),
            "cost": 1e6 * cost, "platform": 1e6 * platform, "product": 1e9 * cost * e2e,
            "refused": len(calls) - len(answered) - len(failed(calls)),
            "failed": len(failed(calls))}


def ablation(options, folder):
    models = [options.model] * 4 + [options.other or options.model] * 4
    rates = [options.rate] * 4 + [options.other_rate if options.other else options.rate] * 4
    budget = sum(weight_bytes(model) for model in models) // 2
    names = options.variants
    rounds = []  # of measures by variant
    for number in range(options.rounds):
        first = number % len(names)
        rounds.append({})
        for name in names[first:] + names[:first]:
            calls = bursty_calls(rates, options.seconds, number, options.prompt, 16)
            rounds[-1][name] = run_variant(options, folder, name, models, budget, calls)
            print(f"round {number + 1}, {name}: {json.dumps(rounds[-1][name])}", file=sys.stderr,
                  flush=True)
    found = {name: [one[name] for one in rounds if one[name]] for name in names}
    table(f"**Ablation**: {len(models)} functions, {len(calls)} calls in {options.seconds:g} s, "
          f"memory for idle artifacts {budget / 1e6:.0f} MB",
          ("variant", *MEASURES.values(), "refused", "failed"),
          [(name, *(median_range([one[key] for one in runs]) for key in MEASURES),
            *(sum(one[key] for one in runs) for key in ("refused", "failed")))
           for name, runs in found.items()])
    full = names[0]
    if len(names) == 1:
        return
    table(f"**Ablation**, to {full} in the same round; medians of {options.rounds} rounds",
          ("variant", *RATIOS.values()),
          [(name, *(median_range([one[name][key] / one[full][key] for one in rounds
                                  if one[name] and one[full]], "{:.2f}") for key in RATIOS))
           for name in names[1:]])


# ---------------------------------------------------------------- overload and flood

def warm_up(gateway, tenants, prompt, output=2):
    play(gateway, [Call(0, tenant, prompt, output) for tenant in range(tenants)])


def sustainable(options, folder, tenants, prompt, output):
    """(rate of calls, first warm TTFT in seconds): 60 % of what eight callers at a time get."""
    config = Config([options.model] * tenants)
    with Gateway(options.sluice, config, [], folder) as gateway:
        warm_up(gateway, tenants, prompt)
        first = play(gateway, [Call(0, 0, prompt, output)])[0].ttft

        async def caller(number, until, done):
            while time.monotonic() < until:
                call = Call(time.monotonic(), number % tenants, prompt, output)
                await call.run(gateway, 0)
                done.append(call)

        async def callers():
            done = []
            until = time.monotonic() + options.seconds / 4
            await asyncio.gather(*(caller(n, until, done) for n in range(8)))
            return done
        began = time.monotonic()
        done = asyncio.run(callers())
        return 0.6 * len(done) / (time.monotonic() - began), first


def overload(options, folder):
    tenants, prompt, output = 4, 1000, 8
    rate, first = sustainable(options, folder, tenants, prompt, output)
    slo = 5 * first
    rows = []
    base = None
    for times in (1, 3):
        config = Config([options.model] * tenants, slo_ms=1e3 * slo)
        with Gateway(options.sluice, config, [], folder) as gateway:
            warm_up(gateway, tenants, prompt)
            generator = random.Random(times)
            # The first seconds teach the gateway its times.
            calls = [Call(due, generator.randrange(tenants), prompt, output)
                     for due in poisson(generator, times * rate, options.seconds)]
            answered = play(gateway, calls)
        late = options.seconds / 5
        counted = [call for call in calls if call.due > late]
        admitted = [call for call in answered if call.due > late]
        within = sum(call.ttft <= slo for call in admitted)
        base = base or within
        rows.append((f"{times} x", f"{times * rate:.1f}", len(counted), len(admitted),
                     f"{100 * within / max(1, len(admitted)):.1f} %",
                     f"{within / (0.8 * options.seconds):.1f}",
                     f"{100 * within / max(1, base):.0f} %",
                     f"{1e3 * percentile([c.ttft for c in admitted], 0.5):.1f}",
                     f"{1e3 * percentile([c.ttft for c in admitted], 0.99):.1f}"))
    table(f"**Overload**: {tenants} functions, prompts of {prompt} tokens, SLO {1e3 * slo:.1f} ms "
          f"(five times the first warm TTFT, {1e3 * first:.1f} ms); goals: 90 % and 90 %",
          ("rate", "calls/s", "calls", "admitted", "of these within the SLO",
           "answers within the SLO a second", "to the sustainable rate", "TTFT P50, ms", "P99"),
          rows)


def flood(options, folder):
    tenants, prompt, output, times = 4, 1000, 8, 10
    rate, _ = sustainable(options, folder, tenants, prompt, output)
    config = Config([options.model] * tenants)
    rounds = {"inside its share": [], f"{times} times its share": []}
    ratios = []
    for number in range(max(2, options.rounds)):
        for name, found in rounds.items():
            generator = random.Random(number)
            calls = [Call(due, tenant, prompt, output) for tenant in range(1, tenants)
                     for due in poisson(generator, rate / tenants, options.seconds / 2)]
            more = 1 if name == "inside its share" else times
            calls += [Call(due, 0, prompt, output)
                      for due in poisson(generator, more * rate / tenants, options.seconds / 2)]
            with Gateway(options.sluice, config, [], folder) as gateway:
                warm_up(gateway, tenants, prompt)
                answered = play(gateway, calls)
            found.append([1e3 * call.ttft for call in answered if call.tenant != 0])
        inside, outside = (percentile(found[-1], 0.99) for found in rounds.values())
        ratios.append(outside / inside)
    table(f"**One tenant floods**: {tenants} tenants, {rate / tenants:.1f} calls/s of each; TTFT "
          "of the others (goal: P99 at most 1.25 times)",
          ("the flooder", "calls of the others", "P50, ms", "P99, ms", "P99 to inside its share"),
          [(name, sum(map(len, found)), median_range([percentile(one, 0.5) for one in found]),
            median_range([percentile(one, 0.99) for one in found]),
            "" if name == "inside its share" else median_range(ratios, "{:.2f}"))
           for name, found in rounds.items()])


# ---------------------------------------------------------------- line

def line(options, folder):
    """Both lines go through the times of one and of four calls of the usual length."""
    lengths, usual, counts = (100, 400, 1000), 400, (1, 2, 4, 8)
    found = {(length, count): [] for length in lengths for count in counts}
    with Gateway(options.sluice, Config([options.model]), [], folder) as gateway:
        warm_up(gateway, 1, usual)
        for _ in range(max(3, round(options.seconds / 2))):
            for (length, count), times in found.items():
                calls = play(gateway, [Call(0, 0, length, 1) for _ in range(count)])
                times.append(max(call.ttft for call in calls))
    time_of = {key: statistics.median(times) for key, times in found.items()}
    first = time_of[usual, 1]
    slope = (time_of[usual, 4] - first) / 3
    rows = []
    for (length, count), seconds in time_of.items():
        by_calls = first + slope * (count - 1)
        by_tokens = first + slope * (count * length / usual - 1)
        rows.append((length, count, f"{1e3 * seconds:.1f}", f"{by_calls / seconds:.2f}",
                     f"{by_tokens / seconds:.2f}"))
    table(f"**T of N calls at once**: medians of {len(found[usual, 1])}; both lines go through one "
          f"and four calls of {usual} tokens",
          ("tokens of each", "N", "ms", "equation 2 to that", "line of tokens to that"), rows)


PARTS = {"ablation": ablation, "overload": overload, "flood": flood, "line": line}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("--other", help="a second checkpoint, for the ablation")
    parser.add_argument("--rate", type=float, default=1.5, help="calls/s of a function of MODEL")
    parser.add_argument("--other-rate", type=float, default=0.1)
    parser.add_argument("--prompt", type=int, default=100, help="tokens, in the ablation")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--variants", default="; ".join(VARIANTS),
                        help="of the ablation, separated by semicolons (default: %(default)s); "
                        "ratios are to the first one")
    parser.add_argument("--quick", action="store_true", help="runs of 4 s")
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    if options.quick:
        options.seconds, options.rounds = 4, 1
    options.variants = [name.strip() for name in options.variants.split(";")]
    wrong = [name for name in options.variants if name not in VARIANTS]
    if wrong:
        parser.error(f"--variants: there is no {', '.join(wrong)}; expected some of "
                     f"{'; '.join(VARIANTS)}")
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--parts: there is no {', '.join(unknown)}; expected some of "
                     f"{', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts.split(","):
            PARTS[part](options, folder)


if __name__ == "__main__":
    main()
