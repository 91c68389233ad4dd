#!/usr/bin/env python3
"""Kills `sluice serve --kv-disk` at random moments while it serves chats.

    tools/kv_kill_campaign.py SLUICE MODEL SECONDS SEED [--rounds N]

A round starts a server on a folder that earlier rounds have written, plain or encrypted, with or
without `--kv-ram` before it, sends it turns of chats, and kills it with SIGKILL: in the middle of
its start, or under load. The folder is smaller than the chats, so pages are written again and
again. With `--kv-ram` calls take turns in less memory, so blocks also wait in RAM for their write.
All answers must be those of a server without a tier. After each kill `sluice kv verify` must be
able to read every segment, and a kill may damage no more blocks than the tier was writing. Rounds
go on for SECONDS, or until there were N. Exit status 1 if something was found.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from kill_campaign import Counter, Failure, arguments_of
from ready_server import free_port

PATIENCE = 120  # seconds for a call, a start or an end
CHATS = 10
TURNS = 5
# Two threads of the tier, each with a write of up to 256 KiB; a page of the demo model has 16 KiB.
DAMAGED_BY_A_KILL = 2 * 16
STARTS_KILLED = 0.2  # of the rounds


class Server:
    """One server; with the tiers of a Folder, or without one."""

    def __init__(self, arguments, folder, tiers=("--kv-cache-memory", "2MiB")):
        self.port = free_port()
        self.path = os.path.join(folder, "said")
        environment = {**os.environ, "XDG_STATE_HOME": os.path.join(folder, "state")}
        with open(self.path, "w", encoding="utf-8") as said:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                [arguments.sluice, "serve", arguments.model, "--port", str(self.port),
                 "--served-model-name", "demo", "--access-log", "off", "--snapshot", "off",
                 "--max-model-len", "1024", *tiers],
                stderr=said, env=environment)

    def log(self):
        with open(self.path, encoding="utf-8") as stream:
            return stream.read()

    def await_ready(self):
        end = time.monotonic() + PATIENCE
        while "\nready: " not in "\n" + self.log():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failure("the server did not start:\n" + self.log())
            time.sleep(0.02)

    def complete(self, prompt):
        """The text, or None if the connection ended with the server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/v1/completions", json.dumps(
                    {"model": "demo", "prompt": prompt, "max_tokens": 24, "temperature": 0,
                     "ignore_eos": True}))
                answer = connection.getresponse()
                body = json.loads(answer.read())
            except TimeoutError as error:
                raise Failure(f"a call had no end within {PATIENCE} s") from error
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return None
        if answer.status != 200:
            raise Failure(f"status {answer.status}: {body}")
        return body["choices"][0]["text"]

    def hit_tokens(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
            except OSError as error:
                raise Failure(f"/metrics: {error}:\n{self.log()}") from error
            for line in text.splitlines():
                if line.startswith("sluice:kv_tier_hit_tokens_total"):
                    return int(float(line.rpartition(" ")[2]))
        raise Failure("/metrics does not count the tokens from the disk")

    def end(self, how):
        self.process.send_signal(how)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failure("the server does not end") from None


def expected_answers(arguments, folder):
    """Prompts of all turns of all chats, each with the answer of a server without a tier."""
    server = Server(arguments, folder)
    answers = []
    try:
        server.await_ready()
        for chat in range(CHATS):
            prompt = f"Chat {chat}: there was a fox who carried a lantern over the hill. " * 8
            for turn in range(TURNS):
                text = server.complete(prompt)
                if text is None:
                    raise Failure("the server without a tier ended:\n" + server.log())
                answers.append((prompt, text))
                prompt += f"{text} And then, on day {turn}, the fox went on. "
    finally:
        server.end(signal.SIGTERM)
    return answers


class Load:
    """Turns without an end, by several threads, on one server."""

    def __init__(self, server, answers, seed):
        self.server = server
        self.answers = answers
        self.stopping = False
        self.count = 0
        self.failures = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed + i),))
                        for i in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, rng):
        try:
            while not self.stopping:
                prompt, wanted = rng.choice(self.answers)
                text = self.server.complete(prompt)
                if text is None:
                    if self.stopping:
                        return
                    raise Failure("a connection ended, and nobody killed the server:\n" +
                                  self.server.log())
                if text != wanted:
                    raise Failure(f"another text after {prompt!r}: {text!r}, not {wanted!r}")
                with self.lock:
                    self.count += 1
        except Failure as failure:
            self.failures.append(str(failure))

    def stop(self):
        self.stopping = True

    def join(self):
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise Failure("\n".join(self.failures))


class Folder:
    """A folder of --kv-disk over many servers. `ram`: each has --kv-ram before it."""

    def __init__(self, parent, name, key, ram):
        self.path = os.path.join(parent, name)
        self.parent = parent
        self.key = ["--kv-disk-key", key] if key else []
        memory = ["--kv-ram", "1MiB", "--scheduler", "fair", "--kv-cache-memory", "1200KiB"]
        self.options = ["--kv-disk", self.path + ":3MiB,free=1MiB", *self.key,
                        *(memory if ram else ["--kv-cache-memory", "2MiB"])]
        self.damaged = 0

    def verify(self, sluice):
        """Good blocks. Fails if one kill has damaged more than it can."""
        if not os.path.isdir(self.path):
            return 0  # killed before it was made
        done = subprocess.run(
            [sluice, "kv", "verify", self.path, *self.key], capture_output=True, text=True,
            check=False, timeout=PATIENCE,
            env={**os.environ, "XDG_STATE_HOME": os.path.join(self.parent, "state")})
        if done.returncode not in (0, 1):
            raise Failure(f"kv verify ended with {done.returncode}: {done.stderr}")
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        good, bad, torn = (sum(int(row[i]) for row in rows) for i in (2, 3, 4))
        if done.stderr.strip() and "kv-secret" not in done.stderr:
            raise Failure("kv verify: " + done.stderr)
        if bad + torn > self.damaged + DAMAGED_BY_A_KILL:
            raise Failure(f"one kill damaged {bad + torn - self.damaged} blocks: {bad} bad, "
                          f"{torn} torn, {good} good")
        self.damaged = bad + torn
        return good


class Sums:
    def __init__(self):
        self.rounds = Counter()
        self.answers = self.hits = self.good = self.most_damaged = 0


def run_round(arguments, parent, folder, answers, rng, sums):
    server = Server(arguments, parent, folder.options)
    try:
        if rng.random() < STARTS_KILLED:
            time.sleep(rng.uniform(0, 0.3))
        else:
            server.await_ready()
            load = Load(server, answers, rng.randrange(1 << 30))
            try:
                time.sleep(rng.uniform(0, 1.5))
                sums.hits += server.hit_tokens()
            finally:
                load.stop()
                server.process.kill()
                load.join()
                sums.answers += load.count
    finally:
        server.end(signal.SIGKILL)
    sums.good = max(sums.good, folder.verify(arguments.sluice))
    sums.most_damaged = max(sums.most_damaged, folder.damaged)
    sums.rounds(1)


def check_last(arguments, parent, folder, answers):
    """Every turn once, on a server that ends by itself."""
    server = Server(arguments, parent, folder.options)
    try:
        server.await_ready()
        for prompt, wanted in answers:
            if (text := server.complete(prompt)) != wanted:
                raise Failure(f"another text after {prompt!r}: {text!r}, not {wanted!r}")
    finally:
        status = server.end(signal.SIGTERM)
    if status != 0:
        raise Failure(f"the server ended with {status}:\n" + server.log())
    folder.verify(arguments.sluice)


def run(arguments, parent, sums):
    answers = expected_answers(arguments, parent)
    key = os.path.join(parent, "key")
    with open(key, "w", encoding="ascii") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write("5" * 64 + "\n")
    folders = [Folder(parent, f"{name}-{ram}", of_folder, ram)
               for name, of_folder in [("plain", None), ("encrypted", key)]
               for ram in [False, True]]
    rng = random.Random(arguments.seed)
    end = time.monotonic() + arguments.seconds
    while (sums.rounds() < arguments.rounds if arguments.rounds else time.monotonic() < end):
        run_round(arguments, parent, rng.choice(folders), answers, rng, sums)
    for folder in folders:
        check_last(arguments, parent, folder, answers)


def main():
    arguments = arguments_of(__doc__).parse_args()
    arguments.sluice = os.path.abspath(arguments.sluice)
    sums = Sums()
    found = None
    with tempfile.TemporaryDirectory() as parent:
        try:
            run(arguments, parent, sums)
        except Failure as failure:
            found = failure
            print(failure)
    print(f"{sums.rounds()} rounds: {sums.answers} answers, {sums.hits} tokens from the disk, at "
          f"most {sums.good} good and {sums.most_damaged} damaged blocks in a folder")
    return 1 if found or sums.rounds() == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
