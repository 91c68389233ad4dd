#!/usr/bin/env python3
"""Measures requests whose KV is several times the KV memory (docs/kv-tiers.md).

    tools/long_context_figures.py build/release/apps/sluice kv-folder [--tokens 8192] [--ratio 4]
        [--figure decode|next-turn]

decode: three rates, in one run: bytes that the server reads in a second while it decodes
(read_bytes of /proc/PID/io), bytes that threads read in a second from a file in the same folder
with O_DIRECT, and tokens in a second with enough memory. The bound is the median of passes over the
file right before and after the decode, with as many threads and bytes in a read as the server has;
the best pass stands beside it. The model has random weights and the KV of the 1B shape: 16 layers,
8 heads of 64, BF16.

next-turn: the time of the first token of a chat's second turn, after a restart, of the third one,
and those of the same prompts on servers with an empty folder, which compute them. The tokens must
be equal.
"""

import argparse
import concurrent.futures
import http.client
import json
import mmap
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEMO = os.path.join(ROOT, "models", "demo")
SHAPE = {"num_hidden_layers": 16, "num_key_value_heads": 8, "num_attention_heads": 8,
         "head_dim": 64, "hidden_size": 512, "intermediate_size": 1024}
KV_BYTES = 2 * 2 * 16 * 8 * 64  # of a token
READ = 512 << 10
THREADS = 4
MIB = 1 << 20


def make_model(folder, tokens):
    for name in os.listdir(DEMO):
        if name.endswith((".json", ".jinja")):
            shutil.copy(os.path.join(DEMO, name), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as stream:
        config = json.load(stream)
    config.update(SHAPE, max_position_embeddings=tokens)
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(config, stream)


class Server:
    def __init__(self, binary, model, *options):
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        self.process = subprocess.Popen(
            [binary, "serve", model, "--load-format", "dummy", "--port", "0", "--snapshot", "off",
             *options], stdout=self.log, stderr=self.log)
        while not (found := re.search(r"listening on http://[^:]+:(\d+);", self.text())):
            if self.process.poll() is not None:
                sys.exit(self.text())
            time.sleep(0.05)
        self.port = int(found[1])
        while self.get("/ready") != 200:
            time.sleep(0.05)

    def text(self):
        with open(self.log.name, encoding="utf-8") as stream:
            return stream.read()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        return connection.getresponse().status

    def read_bytes(self):
        with open(f"/proc/{self.process.pid}/io", encoding="ascii") as stream:
            return int(re.search(r"read_bytes: (\d+)", stream.read())[1])

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stream:
            user, system = stream.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def decode(self, prompt, outputs):
        """Times of the tokens; from the first one to the last: bytes read, CPU seconds."""
        body = {"prompt": prompt, "max_tokens": outputs, "temperature": 0, "ignore_eos": True,
                "stream": True, "model": "m", "return_token_ids": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=36000)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(response.read().decode())
        times, begun, cpu = [], 0, 0
        for line in response:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
                if len(times) == 1:
                    begun, cpu = self.read_bytes(), self.cpu_seconds()
        return times, self.read_bytes() - begun, self.cpu_seconds() - cpu

    def answer(self, prompt, outputs):
        """The seconds, the tokens, and how many of the prompt were not computed."""
        body = {"prompt": prompt, "max_tokens": outputs, "temperature": 0, "ignore_eos": True,
                "model": "m", "return_token_ids": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=36000)
        begun = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            sys.exit(text.decode())
        answer = json.loads(text)
        return (time.monotonic() - begun, answer["choices"][0]["token_ids"],
                answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def disk_rates(folder, size, passes=5):
    """Bytes in a second of each pass over a file."""
    path = os.path.join(folder, "long_context_figures.bytes")
    try:
        with open(path, "wb") as stream:
            for _ in range(size // READ):
                stream.write(os.urandom(READ))
            stream.flush()
            os.fsync(stream.fileno())
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)

        def read_part(part):
            buffer = mmap.mmap(-1, READ)
            for at in range(part, size // READ, THREADS):
                os.preadv(file, [buffer], at * READ)

        rates = []
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for _ in range(passes):
                begun = time.monotonic()
                list(pool.map(read_part, range(THREADS)))
                rates.append(size // READ * READ / (time.monotonic() - begun))
        os.close(file)
        return rates
    finally:
        os.remove(path)


def next_turn(start, folder, tokens, outputs, rounds):
    print("| prompt | loaded | first token | first token, all computed | share | after |")
    print("|---|---|---|---|---|---|")
    for i in range(rounds):
        prompt = [(7 * j + i) % 2900 + 100 for j in range(tokens)]
        shutil.rmtree(folder, ignore_errors=True)
        server = start()
        _, said, _ = server.answer(prompt, outputs)
        server.stop()
        turn = prompt + said + [200 + j for j in range(24)]
        loaded = []
        for restarted in (True, False):
            if restarted:
                server = start()
            seconds, token, cached = server.answer(turn, 1)
            loaded.append((seconds, token, cached, "a restart" if restarted else "the turn before"))
            turn = turn + token + [300 + j for j in range(24)]
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        turn = prompt + said + [200 + j for j in range(24)]
        for seconds, token, cached, after in loaded:
            server = start()
            computed, wanted, none = server.answer(turn, 1)
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)
            if token != wanted or none != 0:
                sys.exit(f"the tokens differ: {token}, {wanted}")
            print(f"| {len(turn)} | {cached} | {seconds:.2f} s | {computed:.2f} s | "
                  f"{seconds / computed:.3f} | {after} |", flush=True)
            turn = turn + token + [300 + j for j in range(24)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=8192, help="of the prompt")
    parser.add_argument("--outputs", type=int, default=16)
    parser.add_argument("--ratio", type=float, default=4, help="the KV to the KV memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", choices=["decode", "next-turn"], default="decode")
    a = parser.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    kv = a.tokens * KV_BYTES
    prompt = [(7 * i) % 2900 + 100 for i in range(a.tokens)]
    with tempfile.TemporaryDirectory() as model:
        longest = a.tokens + a.outputs + 1 + (64 if a.figure == "next-turn" else 0)
        make_model(model, longest)
        common = ["--max-model-len", str(longest), "--threads", "2",
                  "--max-num-batched-tokens", "1024", "--served-model-name", "m"]
        os.environ.setdefault("XDG_STATE_HOME", model)
        streamed = ["--kv-cache-memory", f"{int(kv / a.ratio) // 1024}KiB", "--kv-disk",
                    f"{a.folder}/kv:{4 * kv // MIB + 64}MiB,stream={2 * kv // MIB}MiB,free=1MiB"]
        if a.figure == "next-turn":
            next_turn(lambda: Server(a.binary, model, *common, *streamed),
                      os.path.join(a.folder, "kv"), a.tokens, a.outputs, a.rounds)
            return
        plenty = Server(a.binary, model, *common, "--kv-cache-memory", f"{2 * kv // 1024}KiB")
        times, _, cpu = plenty.decode(prompt, a.outputs)
        plenty.stop()
        in_memory = (times[-1] - times[0]) / (len(times) - 1)
        cpu_in_memory = cpu / (len(times) - 1)
        small = Server(a.binary, model, *common, *streamed)
        print(f"KV {kv / MIB:.0f} MiB, KV memory {kv / a.ratio / MIB:.0f} MiB; a token takes "
              f"{1e3 * in_memory:.0f} ms with all KV in memory, and {1e3 * cpu_in_memory:.0f} ms of "
              "CPU time")
        print("| a token | CPU time | read in a second | the disk's median, best | share of the "
              "median | of the best |\n|---|---|---|---|---|---|")
        for _ in range(a.rounds):
            rates = disk_rates(a.folder, kv)
            times, read, cpu = small.decode(prompt, a.outputs)
            rates += disk_rates(a.folder, kv)
            seconds = times[-1] - times[0]
            best, median = max(rates), statistics.median(rates)
            tokens = len(times) - 1
            print(f"| {1e3 * seconds / tokens:.0f} ms | {1e3 * cpu / tokens:.0f} ms | "
                  f"{read / seconds / MIB:.0f} MiB | {median / MIB:.0f}, {best / MIB:.0f} MiB | "
                  f"{read / seconds / median:.2f} | {read / seconds / best:.2f} |", flush=True)
        small.stop()


if __name__ == "__main__":
    main()
