"""`serve --isolation process`: the same tokens, the sandbox as /proc shows it, and deaths."""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from processes import await_gone, functions_of
from serving import BINARY, LONG_WAIT, MODEL, NAME, PATIENCE, Server, free_port

KEYS = {name: f"sk-{name}-0123456789" for name in ("alice", "bob", "carol")}
# A machine may lack these without a reason to skip; all other layers must be there.
CONTROL_GROUPS = {"memory limit", "task limit", "cpu limit"}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
    return str(path)


def isolated(key_file, *options, functions=2, warm=0, **more):
    return Server("--api-key-file", key_file, "--isolation", "process", "--sandbox", "best-effort",
                  "--max-functions", str(functions), "--warm-workers", str(warm),
                  "--kv-cache-memory", "64MiB", *options,
                  api_key=KEYS["alice"], **more)


def ask(server, name, **fields):
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
            "ignore_eos": True, **fields}
    return server.post("/v1/completions", body, headers={"Authorization": "Bearer " + KEYS[name]})


def ask_model(server, model, **fields):
    """The same call of a server without keys."""
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
            "ignore_eos": True, **fields}
    return server.post("/v1/completions", body)


def text_of(answer):
    assert answer.status == 200, answer
    return answer.json()["choices"][0]["text"]


def missing_layers(server):
    """The names in the server's warning."""
    names = set()
    for line in server.stderr().splitlines():
        if "a function process runs without: " in line:
            listed = line.partition("runs without: ")[2]
            names |= {part.partition(" (")[0].strip() for part in listed.split("; ")}
    return names


@pytest.fixture(scope="module")
def server(key_file):
    with isolated(key_file) as started:
        others = missing_layers(started) - CONTROL_GROUPS
        if others:
            pytest.skip(f"SKIPPED: this machine lacks layers of the sandbox: {sorted(others)}")
        yield started


def test_tokens_are_those_of_one_engine(server, key_file):
    with Server("--api-key-file", key_file, api_key=KEYS["alice"]) as plain:
        for fields in ({}, {"temperature": 0.8, "seed": 7, "n": 2, "logprobs": 2}):
            expected = ask(plain, "alice", **fields).json()["choices"]
            for name in ("alice", "bob"):
                assert ask(server, name, **fields).json()["choices"] == expected


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_integer_weights_give_the_tokens_of_one_engine(key_file, dtype):
    fields = {"temperature": 0.8, "seed": 7, "logprobs": 2}
    with Server("--dtype", dtype) as plain, isolated(key_file, "--dtype", dtype) as apart:
        expected = ask_model(plain, NAME, **fields).json()["choices"]
        for name in ("alice", "bob"):
            assert ask(apart, name, **fields).json()["choices"] == expected


def test_vectors_are_those_of_one_engine(server, key_file):
    def vectors(of):
        body = {"model": NAME, "input": ["a boat", "the sea and a boat"],
                "encoding_format": "float"}
        answer = of.post("/v1/embeddings", body,
                         headers={"Authorization": "Bearer " + KEYS["bob"]})
        assert answer.status == 200, answer
        return [item["embedding"] for item in answer.json()["data"]]

    with Server("--api-key-file", key_file, api_key=KEYS["alice"]) as plain:
        assert vectors(server) == vectors(plain)


SCHEMA = {"type": "object", "additionalProperties": False,
          "properties": {"kind": {"enum": ["fox", "bear"]},
                         "age": {"type": "integer", "minimum": 1, "maximum": 40}},
          "required": ["kind", "age"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
STRUCTURED = [{"guided_json": SCHEMA, "n": 2, "logprobs": True}, {"guided_regex": "[a-c]{3}-[0-9]"},
              {"response_format": {"type": "json_object"}}, {"grammar": 'root ::= "ye" "s"'},
              {"tools": [TOOL], "tool_choice": "required"}]


def test_structured_output_is_that_of_one_engine(server, key_file):
    def answers(of, name, fields):
        body = {"model": NAME, "messages": [{"role": "user", "content": "Tell me about a fox."}],
                "max_tokens": 120, "seed": 3, **fields}
        answer = of.post("/v1/chat/completions", body,
                         headers={"Authorization": "Bearer " + KEYS[name]})
        assert answer.status == 200, answer
        return [(one["message"]["content"], one["finish_reason"],
                 [call["function"] for call in one["message"].get("tool_calls") or []],
                 one.get("logprobs")) for one in answer.json()["choices"]]

    with Server("--api-key-file", key_file, api_key=KEYS["alice"]) as plain:
        for fields in STRUCTURED:
            expected = answers(plain, "alice", fields)
            for name in ("alice", "bob", "alice"):  # the second one finds the grammar there
                assert answers(server, name, fields) == expected, fields
    assert expected[0][2], expected  # the last one has a call


def test_functions_are_in_the_sandbox_and_share_the_weights(server):
    text_of(ask(server, "alice"))
    text_of(ask(server, "bob"))
    pids = functions_of(server.process.pid)
    assert len(pids) == 2
    inodes = set()
    turns = []
    for pid in pids:
        with open(f"/proc/{pid}/status", encoding="ascii") as stream:
            status = stream.read()
        assert "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status
        try:
            for kind in ("net", "ipc", "uts", "mnt", "pid"):
                assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
            with open(f"/proc/{pid}/maps", encoding="ascii") as stream:
                maps = [line.split() for line in stream if "memfd:" in line]
        except PermissionError:
            continue  # an ordinary user may not look into it
        own = [fields for fields in maps if "turn-request" in fields[5]]
        assert len(own) == 1 and own[0][1] == "rw-s", maps
        assert all(fields[1] == "r--s" for fields in maps if fields not in own), maps
        turns += [fields[4] for fields in maps if "sluice-turn" in fields[5]]
        inodes |= {max(maps, key=size_of)[4]}
    assert len(set(turns)) == len(turns), turns  # no page of turns is in two processes
    assert len(inodes) == 1 or (not inodes and os.geteuid() != 0), inodes


def test_turn_time_is_told_by_key(server):
    text_of(ask(server, "alice", max_tokens=200))
    text_of(ask(server, "bob"))
    metrics = server.metrics()
    for name in ("alice", "bob"):
        assert metrics[f"function_turn_seconds_total{{key={name}}}"] > 0
    assert metrics["function_suspensions_total"] == 0


def size_of(fields):
    begin, end = fields[0].split("-")
    return int(end, 16) - int(begin, 16)


class Calls:
    """One call of each name, which computes until the block ends or its process is killed, on any
    machine: the processes are stopped, and have been since before the calls. `asking` makes one."""

    def __init__(self, server, names, asking=ask, **fields):
        self.answers = {}
        self.stopped = functions_of(server.process.pid)

        def call(name):
            self.answers[name] = asking(server, name, **fields)

        self.threads = {name: threading.Thread(target=call, args=(name,)) for name in names}
        for process in self.stopped:
            os.kill(process, signal.SIGSTOP)
        for thread in self.threads.values():
            thread.start()
        deadline = time.monotonic() + LONG_WAIT / 2 * PATIENCE
        while server.metrics()["unfinished_requests"] < len(names):
            if time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(f"the calls did not begin: {self.answers}")
            time.sleep(0.02)

    def answer(self, name):
        self.threads[name].join(2 * LONG_WAIT * PATIENCE)
        return self.answers[name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        for name in self.threads:
            self.answer(name)


def test_without_turns_answers_are_the_same_and_a_warning_says_so(server, key_file):
    alone = text_of(ask(server, "alice"))
    with isolated(key_file, "--turns", "off") as free:
        assert "--turns off is for measurements" in free.stderr()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(ask, free, name) for name in ("alice", "bob")]
            assert [text_of(one.result()) for one in answers] == [alone, alone]


def test_a_death_ends_only_its_own_calls(key_file):
    with isolated(key_file) as server:
        expected = text_of(ask(server, "bob", max_tokens=600))
        bobs, = functions_of(server.process.pid)
        text_of(ask(server, "alice"))
        alices, = set(functions_of(server.process.pid)) - {bobs}
        steps = server.metrics()["engine_steps_total"]
        with Calls(server, ("alice", "bob"), max_tokens=600) as calls:
            os.kill(alices, signal.SIGKILL)
            assert calls.answer("alice").status >= 500, calls.answers
            assert "bob" not in calls.answers
        assert text_of(calls.answer("bob")) == expected
        assert text_of(ask(server, "alice", max_tokens=600)) == expected
        after = functions_of(server.process.pid)
        assert bobs in after and alices not in after
        assert server.metrics()["engine_steps_total"] >= steps


def test_one_key_more_takes_the_place_of_an_idle_one_or_gets_429(server):
    text_of(ask(server, "alice"))
    text_of(ask(server, "bob"))
    with Calls(server, ("alice", "bob")):
        refused = ask(server, "carol")
        assert refused.status == 429 and "--max-functions" in refused.error()["message"], refused
    text_of(ask(server, "carol"))
    assert len(functions_of(server.process.pid)) <= 2


def test_a_function_ends_when_it_is_idle_and_all_with_the_server(key_file):
    with isolated(key_file, "--function-idle", "1") as server:
        text_of(ask(server, "alice"))
        await_functions(server, 0)
        text_of(ask(server, "alice"))
    with isolated(key_file, expected_status=-signal.SIGKILL) as server:
        text_of(ask(server, "alice"))
        left = functions_of(server.process.pid)
        assert left
        server.process.kill()
        server.wait()
        await_gone(left)
    with isolated(key_file, warm=1) as server:
        left = functions_of(server.process.pid)
        assert left
    await_gone(left)


ADAPTERS = [option for name in ("poet", "pirate")
            for option in ("--adapter", f"{name}={MODEL}-adapters/{name}")]


def adapter_inodes(pid):
    """The adapters that a function maps; None if an ordinary user may not look."""
    try:
        with open(f"/proc/{pid}/maps", encoding="ascii") as stream:
            maps = [line.split() for line in stream if "memfd:sluice-adapter" in line]
    except PermissionError:
        return None
    assert all(fields[1] == "r--s" for fields in maps), maps
    return {fields[4] for fields in maps}


def test_each_key_and_adapter_has_a_function(key_file):
    calls = [(name, model) for name in ("alice", "bob") for model in (NAME, "poet", "pirate")]
    with Server("--api-key-file", key_file, *ADAPTERS, api_key=KEYS["alice"]) as plain:
        expected = {model: text_of(ask(plain, "alice", model=model)) for _, model in calls}
    assert len(set(expected.values())) == 3
    with isolated(key_file, *ADAPTERS, functions=6) as server:
        def ask_all(killed=False):
            answers = {}

            def call(name, model):
                answer = ask(server, name, model=model)
                # The call that finds the dead process fails; the next one starts another.
                if killed and answer.status == 500:
                    answer = ask(server, name, model=model)
                answers[name, model] = text_of(answer)

            threads = [threading.Thread(target=call, args=one) for one in calls]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(2 * LONG_WAIT * PATIENCE)
            assert answers == {(name, model): expected[model] for name, model in calls}

        ask_all()
        before = functions_of(server.process.pid)
        assert len(before) == 6
        inodes = [adapter_inodes(pid) for pid in before]
        if None not in inodes:
            assert sorted(map(len, inodes)) == [0, 0, 1, 1, 1, 1]
            assert len(set().union(*inodes)) == 2
        os.kill(before[3], signal.SIGKILL)
        await_gone(before[3:4])
        ask_all(killed=True)
        assert set(before) - set(before[3:4]) <= set(functions_of(server.process.pid))


def test_fp8_weights_give_two_keys_the_choices_of_one_engine(key_file):
    fields = {"temperature": 0.8, "seed": 7, "n": 2, "logprobs": 3}
    calls = [(name, model) for model in (NAME, "poet") for name in ("alice", "bob")]

    def choices(of):
        answers = [ask(of, name, model=model, **fields) for name, model in calls]
        assert all(answer.status == 200 for answer in answers), answers
        return [answer.json()["choices"] for answer in answers]

    with Server("--api-key-file", key_file, "--dtype", "fp8", *ADAPTERS,
                api_key=KEYS["alice"]) as plain:
        expected = choices(plain)
    with isolated(key_file, "--dtype", "fp8", *ADAPTERS, functions=4) as server:
        assert choices(server) == expected
    assert expected[0] != expected[2]


def await_functions(server, count):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while len(pids := functions_of(server.process.pid)) != count:
        assert time.monotonic() < deadline, f"{len(pids)} functions, not {count}"
        time.sleep(0.02)
    return pids


def await_warm(server, count):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while (ready := server.metrics()["warm_functions"]) != count:
        assert time.monotonic() < deadline, f"{ready} warm workers are ready, not {count}"
        time.sleep(0.02)


def test_a_warm_worker_becomes_a_function_once(key_file):
    with isolated(key_file, *ADAPTERS, functions=4) as cold:
        expected = {model: text_of(ask(cold, "alice", model=model)) for model in (NAME, "poet")}
    with isolated(key_file, *ADAPTERS, functions=4, warm=2) as server:
        # Until it runs its own program, a new process has the server's mappings.
        await_warm(server, 2)
        workers = await_functions(server, 2)
        assert all(not adapter_inodes(pid) for pid in workers)
        given = set()
        for name, model in (("alice", "poet"), ("bob", NAME), ("bob", "poet")):
            before = await_functions(server, len(given) + 2)
            await_warm(server, 2)
            assert text_of(ask(server, name, model=model)) == expected[model]
            now = functions_of(server.process.pid)
            # The call got one of the workers, and a new one comes in its place.
            assert set(before) <= set(now)
            given.add((name, model))
        await_warm(server, 2)
        pids = await_functions(server, 5)
        inodes = [adapter_inodes(pid) for pid in pids]
        if None not in inodes:
            assert sorted(map(len, inodes)) == [0, 0, 0, 1, 1]
            assert len(set().union(*inodes)) == 1


@contextlib.contextmanager
def strict(*options, **more):
    """A server with the default sandbox; skips where the machine lacks a layer."""
    try:
        server = Server("--isolation", "process", *options, **more)
    except AssertionError as failure:
        lines = [line for line in str(failure).splitlines() if "the sandbox lacks layers" in line]
        if not lines:
            raise
        pytest.skip(f"SKIPPED: no strict sandbox here: {lines[-1]}")
    with server:
        yield server


def test_the_command_of_the_docs_keeps_siblings_apart_in_the_strict_sandbox():
    models = (NAME, "poet", "pirate")
    with Server(*ADAPTERS) as plain:
        expected = {model: text_of(ask_model(plain, model, max_tokens=400)) for model in models}
    with strict(*ADAPTERS) as server:
        assert "a function process runs without" not in server.stderr()
        pids = {}
        for model in models:  # each gets the warm worker
            await_warm(server, 1)
            worker, = set(await_functions(server, len(pids) + 1)) - set(pids.values())
            text_of(ask_model(server, model))
            pids[model] = worker
        await_warm(server, 1)
        with Calls(server, models, ask_model, max_tokens=400) as calls:
            os.kill(pids["poet"], signal.SIGKILL)
            assert calls.answer("poet").status >= 500, calls.answers
            assert calls.answers["poet"].error()["message"]
            assert set(calls.answers) == {"poet"}
        for model in (NAME, "pirate"):
            assert text_of(calls.answer(model)) == expected[model]
        assert text_of(ask_model(server, "poet", max_tokens=400)) == expected["poet"]
        left = functions_of(server.process.pid)
        assert pids["poet"] not in left and {pids[NAME], pids["pirate"]} <= set(left)


def test_a_reload_gives_later_calls_a_new_function(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEYS['alice']} role=admin\n")
    for name in ("poet", "pirate"):
        shutil.copytree(f"{MODEL}-adapters/{name}", tmp_path / "adapters" / name)
    with isolated(str(keys), "--adapter-dir", str(tmp_path / "adapters")) as server:
        def load(path):
            answer = server.post("/v1/load_lora_adapter", {
                "lora_name": "style", "lora_path": str(tmp_path / "adapters" / path),
                "load_inplace": True})
            assert answer.status == 200, answer

        load("poet")
        before = text_of(ask(server, "alice", model="style"))
        load("pirate")
        after = text_of(ask(server, "alice", model="style"))
        assert after != before
        load("poet")
        assert text_of(ask(server, "alice", model="style")) == before


def test_what_does_not_go_with_it_is_refused_by_name():
    for options in (["--adapter-slots", "2"], ["--snapshot", "auto"], ["--enforce-eager"],
                    ["--tbt-slo-ms", "50"], ["--sandbox", "loose"], ["--turns", "maybe"]):
        done = subprocess.run([BINARY, "serve", MODEL, "--port", str(free_port()), "--isolation",
                               "process", *options], capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 2 and options[0] in done.stderr, done
