#!/usr/bin/env python3
"""Kills processes of `sluice serve --isolation process` at random moments under load.

    tools/kill_campaign.py SLUICE MODEL SECONDS SEED [--rounds N]

A round kills one process with SIGKILL: mostly a function or a warm worker, every tenth time the
server, which starts all of them; then another server follows. Rounds go on for SECONDS, or until
there were N. Each call must end within a minute, with the text that an undisturbed server gives,
or with an error that has a message. At the end of each server no process, control group or
connection may be left; so no other server may be killed on this machine meanwhile. Exit status 1 if
something was found.
"""

import argparse
import contextlib
import glob
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

from ready_server import children_of, free_port

KEYS = {name: f"sk-kill-{name}-0123456789" for name in ("alice", "bob", "carol")}
PATIENCE = 60  # seconds for a call, a start or an end
SERVER_EVERY = 10  # rounds


class Failure(Exception):
    """A finding of the campaign."""


class Processes:
    """All that a campaign has started. end() kills the ones that still run.

    Functions end with the process that has started them.
    """

    def __init__(self):
        self.started = []

    def start(self, line, stderr):
        process = subprocess.Popen(line, stderr=stderr)  # pylint: disable=consider-using-with
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()  # also one that is stopped
                process.wait()


PROCESSES = Processes()


class Server:
    """One server and the calls that it gets."""

    def __init__(self, arguments, folder, isolated=True):
        self.port = free_port()
        path = os.path.join(folder, "keys")
        with open(path, "w", encoding="ascii") as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.writelines(f"{name} {key}\n" for name, key in KEYS.items())
        options = ["--isolation", "process", "--sandbox", "best-effort", "--max-functions", "5",
                   "--warm-workers", "1"] if isolated else ["--snapshot", "off"]
        adapters = [part for name in ("poet", "pirate")
                    for part in ("--adapter", f"{name}={arguments.model}-adapters/{name}")]
        self.said = open(  # pylint: disable=consider-using-with
            os.path.join(folder, "said"), "w+", encoding="utf-8")
        self.process = PROCESSES.start(
            [arguments.sluice, "serve", arguments.model, "--port", str(self.port),
             "--api-key-file", path, "--served-model-name", "demo", "--access-log", "off",
             "--kv-cache-memory", "64MiB", *options, *adapters], self.said)
        end = time.monotonic() + PATIENCE
        while "\nready: " not in self.log():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failure("the server did not start:\n" + self.log())
            time.sleep(0.02)

    def log(self):
        self.said.flush()
        with open(self.said.name, encoding="utf-8") as stream:
            return "\n" + stream.read()

    def complete(self, key, body):
        """(status, parsed body); status 0: the connection ended, as it does with the server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/v1/completions", json.dumps(body),
                                   {"Authorization": "Bearer " + KEYS[key]})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except TimeoutError as error:
                raise Failure(f"a call of {key} had no end within {PATIENCE} s") from error
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return 0, None

    def functions(self):
        return children_of(self.process.pid)

    def end(self, how):
        """Ends it with a signal; nothing may be left."""
        pids = self.functions()
        self.process.send_signal(how)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure("the server does not end") from None
        if how == signal.SIGTERM and status != 0:
            raise Failure(f"the server ended with {status}:\n" + self.log())
        end = time.monotonic() + PATIENCE
        while left := [pid for pid in pids if is_running(pid)]:
            if time.monotonic() > end:
                raise Failure(f"processes outlive their server: {left}")
            time.sleep(0.02)
        self.said.close()


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def control_groups(root="/sys/fs/cgroup"):
    """All groups that servers have made and not removed."""
    return set(glob.glob(f"{root}/**/sluice-*", recursive=True))


def left_groups(before, now):
    """The new ones of processes that are gone.

    An older one may have the number of an unrelated process; the end of that is no finding.
    """
    return sorted(path for path in now - before if path.rpartition("-")[2].isdigit()
                  and not is_running(int(path.rpartition("-")[2])))


def bodies():
    for model in ("demo", "poet", "pirate"):
        for tokens in (4, 60, 300):
            yield {"model": model, "prompt": f"Once upon a time, {tokens}", "max_tokens": tokens,
                   "temperature": 0.7, "seed": tokens, "ignore_eos": True}


class Counter:
    """Adds what it is called with, and returns the sum."""

    def __init__(self):
        self.sum = 0

    def __call__(self, more=0):
        self.sum += more
        return self.sum


class Load:
    """Calls without an end, by several threads, on whichever server runs."""

    def __init__(self, expected, seed):
        self.expected = expected
        self.server = None
        self.stopping = False
        self.answers = self.errors = self.lost = 0
        self.failures = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed + i),))
                        for i in range(6)]

    def run(self, rng):
        try:
            while not self.stopping:
                server = self.server
                if server is None:
                    time.sleep(0.01)
                    continue
                self.judge(server, *self.choose(rng))
        except Failure as failure:
            self.failures.append(str(failure))

    def choose(self, rng):
        """The tenant and the body of the next call."""
        return rng.choice(list(KEYS)), rng.choice(list(bodies()))

    def judge(self, server, key, body):
        status, answer = server.complete(key, body)
        with self.lock:
            if status == 0:
                # Only the end of the server may end a connection.
                if self.server is server and server.process.poll() is None:
                    time.sleep(0.5)
                    if self.server is server and server.process.poll() is None:
                        raise Failure("a connection ended, and the server lives")
                self.lost += 1
            elif status == 200:
                text = answer["choices"][0]["text"]
                if text != self.expected[json.dumps(body)]:
                    raise Failure(f"another text for {body}: {text!r}")
                self.answers += 1
            elif status in (429, 500, 503) and answer["error"]["message"]:
                self.errors += 1
            else:
                raise Failure(f"status {status}: {answer}")


def expected_texts(arguments, folder):
    server = Server(arguments, folder, isolated=False)
    texts = {}
    for body in bodies():
        status, answer = server.complete("alice", body)
        if status != 200:
            raise Failure(f"status {status} without isolation: {answer}")
        texts[json.dumps(body)] = answer["choices"][0]["text"]
    server.end(signal.SIGTERM)
    return texts


def kill_one(server, rng):
    pids = server.functions()
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def run(arguments, folder, load, count):
    """Calls `count` after each round."""
    rng = random.Random(arguments.seed)
    before = control_groups()
    end = time.monotonic() + arguments.seconds
    while (count() < arguments.rounds if arguments.rounds else time.monotonic() < end):
        server = Server(arguments, folder)
        files = open_files(server)
        load.server = server
        for _ in range(SERVER_EVERY - 1):
            time.sleep(rng.uniform(0.02, 0.6))
            kill_one(server, rng)
            count(1)
            if load.failures:
                return
            if server.process.poll() is not None:
                raise Failure("the server ended by itself:\n" + server.log())
        time.sleep(rng.uniform(0.02, 0.6))
        most = files + 6 * 16 + len(load.threads) + 8  # functions, connections, some files
        if open_files(server) > most:
            raise Failure(f"the server has {open_files(server)} open files, {files} at first")
        load.server = None
        server.end(signal.SIGKILL)
        count(1)
    server = Server(arguments, folder)  # removes what killed servers left
    status, answer = server.complete("alice", next(iter(bodies())))
    if status != 200:
        raise Failure(f"status {status} after the last round: {answer}")
    server.end(signal.SIGTERM)
    if left := left_groups(before, control_groups()):
        raise Failure(f"control groups are left: {left}")


def arguments_of(description):
    """The parser of all campaigns that kill."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("--rounds", type=int)
    return parser


def run_under_load(make_load, run_rounds):
    """Runs the rounds beside the threads of a load, and ends all processes, also at SIGTERM. Prints
    what was found; returns that and the load, or no load if it could not be made."""
    load, found = None, []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        load = make_load()
        for thread in load.threads:
            thread.start()
        run_rounds(load)
    except Failure as failure:
        found.append(str(failure))
    finally:
        if load is not None:
            load.stopping = True
            load.server = None
        PROCESSES.end()  # so that the calls of the load end
        if load is not None:
            for thread in load.threads:
                if thread.ident is not None:
                    thread.join(2 * PATIENCE)
            found += load.failures
    for failure in found:
        print(failure)
    return found, load


def main():
    arguments = arguments_of(__doc__).parse_args()
    rounds = Counter()
    with tempfile.TemporaryDirectory() as folder:
        found, load = run_under_load(
            lambda: Load(expected_texts(arguments, folder), arguments.seed),
            lambda load: run(arguments, folder, load, rounds))
    if load is not None:
        print(f"{rounds()} rounds: {load.answers} answers, {load.errors} calls with an error, "
              f"{load.lost} lost with their server")
    return 1 if found or load.answers == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
