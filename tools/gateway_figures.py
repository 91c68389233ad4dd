#!/usr/bin/env python3
"""Measures `sluice gateway` (docs/serverless.md) with the demo model: answers of one token of warm
functions beside those of `sluice serve`, at a fixed rate over many functions, in rounds that take
turns; and the first token of a cold function, less that of the same function warm.

    tools/gateway_figures.py build/release/apps/sluice models/demo [--functions 50] [--rate 200]
        [--seconds 10] [--rounds 3] [--cold 20]
"""

import argparse
import asyncio
import hashlib
import http.client
import json
import os
import statistics
import sys
import tempfile
import time

from ready_server import ReadyServer


def write_functions(folder, model, count, idle_s):
    """A file of `count` tenants that may all call the base model: as many functions."""
    lines = [f"[defaults]\nidle_s = {idle_s}\n"]
    keys = [f"sk-figures-{i:04}" for i in range(count)]
    for i, key in enumerate(keys):
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines.append(f'[[tenant]]\nname = "t{i}"\nkey_sha256 = "{digest}"\n')
    lines.append(f'[[backbone]]\nname = "m"\ndirectory = "{os.path.abspath(model)}"\n'
                 'tenants = ["*"]\n')
    path = os.path.join(folder, "functions.toml")
    with open(path, "w", encoding="ascii") as stream:
        stream.write("\n".join(lines))
    return path, keys


def body_of(number):
    return json.dumps({"model": "m", "prompt": f"Story {number}: Once upon a time there was a",
                       "max_tokens": 1, "temperature": 0}).encode()


async def one_call(port, key, number, due, times):
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    body = body_of(number)
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\nAuthorization: Bearer " + key.encode() +
                 b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
    answer = await reader.read()
    writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(answer.decode())
    times.append(time.monotonic() - start)


async def fixed_rate(port, keys, rate, seconds):
    times = []
    begin = time.monotonic() + 0.1
    await asyncio.gather(*(one_call(port, keys[i % len(keys)], i, begin + i / rate, times)
                           for i in range(int(rate * seconds))))
    return times


def dispatch_times(port):
    """The cumulative counts of request_dispatch_seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    counts = {}
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith("sluice:request_dispatch_seconds_bucket"):
            counts[float(line.split('le="')[1].split('"')[0])] = float(line.split()[-1])
    return counts


def number_of_instances(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    return sum(float(line.split()[-1])
               for line in connection.getresponse().read().decode().splitlines()
               if line.startswith("sluice:gateway_instances{"))


def quantile_of_counts(before, after, q):
    """The upper edge of the bucket in which the quantile lies."""
    since = {edge: after[edge] - before.get(edge, 0) for edge in after}
    return next(edge for edge in sorted(since) if since[edge] >= q * max(since.values()))


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def print_warm(args, folder):
    path, keys = write_functions(folder, args.model, args.functions, 600)
    key_file = os.path.join(folder, "keys")
    with open(key_file, "w", encoding="ascii") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.writelines(f"t{i} {key}\n" for i, key in enumerate(keys))
    memory = ["--kv-cache-memory", "64MiB"]
    serve = [args.binary, "serve", args.model, "--served-model-name", "m", "--api-key-file",
             key_file, *memory]
    gateway = [args.binary, "gateway", "--config", path, "--usage", folder + "/usage.db",
               "--max-functions", str(args.functions), *memory]
    rounds = {"serve": [], "gateway": []}
    with ReadyServer(serve) as plain, ReadyServer(gateway) as many:
        for server in (plain, many):  # starts every function
            asyncio.run(fixed_rate(server.port, keys, 20, args.functions / 20))
        print(f"{len(many.children())} function processes")
        for _ in range(args.rounds):
            for name, server in (("serve", plain), ("gateway", many)):
                before = dispatch_times(server.port)
                times = asyncio.run(fixed_rate(server.port, keys, args.rate, args.seconds))
                after = dispatch_times(server.port)
                rounds[name].append([1e3 * quantile(times, q) for q in (0.5, 0.99)] +
                                    [1e3 * quantile_of_counts(before, after, q)
                                     for q in (0.5, 0.99)])
    titles = ("answer P50", "answer P99", "dispatch P50 at most", "dispatch P99 at most")
    for name, measured in rounds.items():
        for title, values in zip(titles, zip(*measured)):
            print(f"{name}: {title}: {statistics.median(values):.3f} ms "
                  f"({min(values):.3f} to {max(values):.3f})")


def first_token(server, key, number):
    body = body_of(number)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.connect()
    start = time.monotonic()
    connection.request("POST", "/v1/completions", body,
                       {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    taken = time.monotonic() - start
    if answer.status != 200:
        raise SystemExit(f"status {answer.status}")
    return taken


def print_cold(args, folder):
    path, keys = write_functions(folder, args.model, 1, 1)

    def gateway(workers):
        return ReadyServer([args.binary, "gateway", "--config", path, "--usage",
                            f"{folder}/cold{workers}.db", "--kv-cache-memory", "64MiB",
                            "--warm-workers", str(workers)])

    times = {workers: ([], []) for workers in (0, 1)}
    with gateway(0) as without, gateway(1) as worker:
        first_token(worker, keys[0], 0)  # before a call, no worker is worth its memory
        for i in range(1, args.cold + 1):
            for workers, server in ((0, without), (1, worker)):
                while len(server.children()) != workers or number_of_instances(server.port) > 0:
                    time.sleep(0.1)
                time.sleep(0.5)  # until the worker is ready
                cold, warm = times[workers]
                cold.append(1e3 * first_token(server, keys[0], 2 * i))
                warm.append(1e3 * first_token(server, keys[0], 2 * i + 1))
    for workers, (cold, warm) in times.items():
        added = [c - w for c, w in zip(cold, warm)]
        for name, values in (("cold", cold), ("warm", warm), ("cold less warm", added)):
            print(f"{workers} warm workers: {name}: first token: "
                  f"{statistics.median(values):.1f} ms ({min(values):.1f} to {max(values):.1f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--functions", type=int, default=50)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_cold(args, folder)
        print_warm(args, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
