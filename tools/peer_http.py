"""The part of tools/compare_peers.py that measures any server with OpenAI's API over HTTP: a stream
beside a long prompt, many chats at once, and a start."""

import http.client
import json
import os
import threading
import time
import urllib.parse

import peer_engines
import peer_worker

LONG_PROMPT = 1500
STREAM_TOKENS = 1500  # of the stream beside it: more than it can need
CALM_TOKENS = 8       # of the stream, before the prompt is sent and after its first token
START_TOKENS = 16     # of the prompt that ends a start
WARM_REST_S = 10
LIMIT_S = 120


def stream(url, body, token):
    """Sends a completion and calls `token` at each of its tokens, until that returns False."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=LIMIT_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise peer_engines.Unavailable(f"{answer.status}: {answer.read().decode()[:200]}")
        while line := answer.readline():
            if line.startswith(b"data: {") and not token():
                return
    finally:
        connection.close()


def completion(server, prompt, seed, tokens):
    """A request for tokens of any kind, after a prompt of random ones."""
    return {"model": server.model, "prompt": peer_worker.prompt_ids(prompt, seed),
            "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
            "skip_special_tokens": False}


def longest_gap(times, begin, end):
    """The longest of the gaps that touch [begin, end], in seconds."""
    return max(after - before for before, after in zip(times, times[1:])
               if after >= begin and before <= end)


def warm(server, seed):
    """Sends a server two prompts and lets it rest, because engines compile kernels and move weights
    at first. Starts are measured without this."""
    for length in (64, LONG_PROMPT):
        stream(server.url, completion(server, length, seed, 4), lambda: True)
    time.sleep(WARM_REST_S)


class Stall:
    """One stream, and a long prompt that arrives while it runs."""

    def __init__(self, server, seed):
        self.server, self.seed = server, seed
        self.calm = threading.Event()
        self.failed = None
        self.times = []
        self.sent = self.first = None

    def on_token(self):
        self.times.append(time.monotonic())
        if len(self.times) == CALM_TOKENS:
            self.calm.set()
        after = 0 if self.first is None else sum(t > self.first for t in self.times[-CALM_TOKENS:])
        return after < CALM_TOKENS

    def run_stream(self):
        try:
            stream(self.server.url, completion(self.server, 64, self.seed, STREAM_TOKENS),
                   self.on_token)
        except (OSError, peer_engines.Unavailable) as error:
            self.failed = str(error)
        self.calm.set()

    def on_first(self):
        self.first = time.monotonic()
        return False

    def measure(self):
        """Seconds: the longest gap of the stream, and the first token of the prompt."""
        running = threading.Thread(target=self.run_stream)
        running.start()
        try:
            if not self.calm.wait(LIMIT_S):
                raise peer_engines.Unavailable(f"the stream did not begin within {LIMIT_S} s")
            self.sent = time.monotonic()
            stream(self.server.url, completion(self.server, LONG_PROMPT, self.seed + 1, 4),
                   self.on_first)
        finally:
            self.first = self.first or time.monotonic()
            running.join()
        if self.failed or self.sent is None:
            raise peer_engines.Unavailable(self.failed or "the stream failed")
        if self.times[-1] < self.first:
            raise peer_engines.Unavailable("the stream ended before the prompt's first token")
        return longest_gap(self.times, self.sent, self.first), self.first - self.sent


def read_once(path):
    """Reads a file, or all files of a folder, so that they lie in the page cache."""
    names = [path] if os.path.isfile(path) else [
        os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files]
    for name in names:
        with open(name, "rb") as file:
            while file.read(1 << 22):
                pass


def start(engine, model, seed):
    """Seconds from starting the engine's server to its first token. Its files are read before."""
    read_once(model)
    begun = time.monotonic()
    server = engine.serve(model)
    first = []
    try:
        stream(server.url, completion(server, START_TOKENS, seed, 16),
               lambda: first.append(time.monotonic()))
    finally:
        server.stop()
    if not first:
        raise peer_engines.Unavailable("no token came")
    return first[0] - begun


def chats(binary, server, lengths, count, seed):
    """By sluice bench serve: output tokens per second, and P99 of gaps in seconds."""
    result = json.loads(peer_engines.run(
        [binary, "bench", "serve", "--base-url", server.url, "--endpoint", "/v1/chat/completions",
         "--num-prompts", str(count), "--max-concurrency", "16", "--lengths", lengths,
         "--ignore-eos", "--seed", str(seed), "--json", "--no-progress"], 600))
    if result["failed"] > 0 or result["completed"] < count:
        raise peer_engines.Unavailable(f"{result['failed']} of {count} chats failed")
    return result["output_throughput"], result["p99_itl_ms"] / 1000
