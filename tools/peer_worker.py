"""The loop of a peer's worker: a program in the peer's own environment that loads a model once and
then measures what it is told to. Requests are lines of JSON on stdin; an answer is a line on stdout
that begins with RESULT. Standard library only.
"""

import json
import sys
import time

PREFIX = "RESULT "


def prompt_ids(count, seed):
    """Ordinary tokens, others for each seed, so that no prefix cache finds anything."""
    return [1000 + (7919 * i + 104729 * seed) % 50000 for i in range(count)]


class Rates:
    """Tokens per second of an engine that can only be asked for whole answers. `generate(prompts,
    new)` gives each prompt exactly `new` tokens."""

    def __init__(self, generate, clock=time.monotonic):
        self.generate, self.clock, self.seed = generate, clock, 0

    def seconds(self, streams, prompt, new):
        prompts = []
        for _ in range(streams):
            self.seed += 1
            prompts.append(prompt_ids(prompt, self.seed))
        begin = self.clock()
        self.generate(prompts, new)
        return self.clock() - begin

    def measure(self, job):
        if job["kind"] == "prefill":
            return job["tokens"] / self.seconds(1, job["tokens"], 1)
        # The first token of each answer comes with the prefill.
        first = self.seconds(job["streams"], job["prompt"], 1)
        whole = self.seconds(job["streams"], job["prompt"], 1 + job["tokens"])
        return job["streams"] * job["tokens"] / (whole - first)


def answer(value):
    print(PREFIX + json.dumps(value), flush=True)


def run(load):
    """`load(arguments)` makes the generate function. The first answer says that it is loaded."""
    rates = Rates(load(sys.argv[1:]))
    answer({"loaded": True})
    for line in sys.stdin:
        try:
            answer({"value": rates.measure(json.loads(line))})
        except Exception as error:  # pylint: disable=broad-exception-caught; the caller names it
            answer({"error": f"{type(error).__name__}: {error}"[:300]})
