"""The part of tools/compare_peers.py that measures any server with OpenAI's API over HTTP: a stream
beside a long prompt, and many chats at once."""

import http.client
import json
import threading
import time
import urllib.parse

import peer_engines
import peer_worker

LONG_PROMPT = 1500
STREAM_TOKENS = 1500  # of the stream beside it: more than it can need
CALM_TOKENS = 8       # of the stream, before the prompt is sent and after its first token
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


def longest_gap(times, begin, end):
    """The longest of the gaps that touch [begin, end], in seconds."""
    return max(after - before for before, after in zip(times, times[1:])
               if after >= begin and before <= end)


class Stall:
    """One stream, and a long prompt that arrives while it runs."""

    def __init__(self, server, seed):
        self.server, self.seed = server, seed
        self.calm = threading.Event()
        self.failed = None
        self.times = []
        self.sent = self.first = None

    def body(self, prompt, seed, tokens):
        return {"model": self.server.model, "prompt": peer_worker.prompt_ids(prompt, seed),
                "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
                "skip_special_tokens": False}

    def on_token(self):
        self.times.append(time.monotonic())
        if len(self.times) == CALM_TOKENS:
            self.calm.set()
        after = 0 if self.first is None else sum(t > self.first for t in self.times[-CALM_TOKENS:])
        return after < CALM_TOKENS

    def run_stream(self):
        try:
            stream(self.server.url, self.body(64, self.seed, STREAM_TOKENS), self.on_token)
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
            stream(self.server.url, self.body(LONG_PROMPT, self.seed + 1, 4), self.on_first)
        finally:
            self.first = self.first or time.monotonic()
            running.join()
        if self.failed or self.sent is None:
            raise peer_engines.Unavailable(self.failed or "the stream failed")
        if self.times[-1] < self.first:
            raise peer_engines.Unavailable("the stream ended before the prompt's first token")
        return longest_gap(self.times, self.sent, self.first), self.first - self.sent


def chats(binary, server, lengths, count, seed):
    """By sluice bench serve: output tokens per second, and P99 of gaps in seconds."""
    result = json.loads(peer_engines.run(
        [binary, "bench", "serve", "--base-url", server.url, "--endpoint", "/v1/chat/completions",
         "--num-prompts", str(count), "--max-concurrency", "16", "--lengths", lengths,
         "--ignore-eos", "--seed", str(seed), "--json", "--no-progress"], 600))
    if result["failed"] > 0 or result["completed"] < count:
        raise peer_engines.Unavailable(f"{result['failed']} of {count} chats failed")
    return result["output_throughput"], result["p99_itl_ms"] / 1000
