"""`sluice gateway` on examples/functions.toml, as its users see it: names, cold starts, idle time,
deaths, quotas and reloads."""

import contextlib
import csv
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import openai
import pytest

from processes import await_gone, functions_of
from serving import BINARY, LONG_WAIT, MODEL, PATIENCE, ROOT, Server, sse_events

EXAMPLE = os.path.join(ROOT, "examples", "functions.toml")
KEYS = {tenant: f"sk-example-tenant-{tenant}-0001" for tenant in "ab"}
MODELS = {"a": ["demo", "poet"], "b": ["demo", "pirate"]}


ADMIN = "sk-admin-0123456789"
ADMIN_SECTION = ("[defaults]", f"[admin]\nkey_sha256 = "
                 f'"{hashlib.sha256(ADMIN.encode()).hexdigest()}"\n\n[defaults]')
# However long a test takes, no process ends meanwhile: stop_functions() does that.
NOT_IDLE_SOON = ("idle_s = 5", "idle_s = 3000")
# However long a call takes, it keeps to its goal.
NO_GOALS = (("ttft_slo_ms = 2500", "ttft_slo_ms = 600000"),
            ("ttft_slo_ms = 1000", "ttft_slo_ms = 600000"))


def gateway(config, *options, usage=None, **more):
    usage = usage or os.path.join(os.path.dirname(config), "usage.db")
    return Server("--config", str(config), "--sandbox", "best-effort", "--kv-cache-memory", "64MiB",
                  "--usage", str(usage), *options, model=None, command="gateway",
                  api_key=KEYS["a"], **more)


def write_config(folder, *changes):
    """The example with changes, in a folder of its own."""
    with open(EXAMPLE, encoding="utf-8") as stream:
        text = stream.read().replace("../models", os.path.join(ROOT, "models"))
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    path = folder / "functions.toml"
    path.write_text(text)
    return path


def client(server, tenant):
    return openai.OpenAI(base_url=server.base + "/v1", api_key=KEYS[tenant], max_retries=0)


def ask(server, tenant, model, **fields):
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0,
            "ignore_eos": True, **fields}
    return server.post("/v1/completions", body,
                       headers={"Authorization": "Bearer " + KEYS[tenant]})


def text_of(answer):
    assert answer.status == 200, answer
    return answer.json()["choices"][0]["text"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    config = write_config(folder, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS)
    with gateway(config) as started:
        yield started


def admin(server, method, path, body=None):
    return server.request(method, path, body, headers={"Authorization": "Bearer " + ADMIN})


def stop_functions(server):
    """An admin ends them, in no more time than that takes."""
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while True:
        left = stop_instances(server)
        if not left and not functions_of(server.process.pid):
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def stop_instances(server):
    """An admin asks for the end of each; returns those that there were."""
    functions = admin(server, "GET", "/gateway/state").json()["functions"]
    left = [one for one in functions if one["state"] != "absent"]
    for one in left:
        admin(server, "POST", "/gateway/actions",
              {"action": "stop", "tenant": one["tenant"], "function": one["name"]})
    return left


@pytest.mark.parametrize("body, content_type", (
    ("model=demo&prompt=x", "application/x-www-form-urlencoded"),
    ("--b\r\nContent-Disposition: form-data; name=model\r\n\r\ndemo\r\n--b--\r\n",
     "multipart/form-data; boundary=b")))
def test_a_form_is_refused_by_name(server, body, content_type):
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/gateway/actions"):
        answer = server.post(path, body, headers={"Authorization": "Bearer " + ADMIN,
                                                  "Content-Type": content_type})
        assert answer.status == 400, (path, answer)
        message = answer.error()["message"]
        assert "is a form" in message and "application/json" in message, (path, message)


def test_json_is_read_under_the_content_type_of_a_form(server):
    """`curl -d` sends it so."""
    answer = server.post("/v1/completions", '{"model": "demo", "prompt": "x", "max_tokens": 1}',
                         headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status == 200, answer


def test_each_tenant_sees_its_own_functions(server):
    for tenant, names in MODELS.items():
        models = client(server, tenant).models.list().data
        assert sorted(model.id for model in models) == names


def test_a_cold_streaming_chat_is_answered(server):
    stop_functions(server)
    stream = client(server, "a").chat.completions.create(
        model="poet", messages=[{"role": "user", "content": "Hello"}], max_tokens=8, stream=True)
    chunks = list(stream)
    assert chunks[0].model == "poet"
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")
    assert len(functions_of(server.process.pid)) == 1


def test_a_function_starts_before_its_prompt_is_read(server):
    """The prompt turns out to be too long, and by then the process was started."""
    stop_functions(server)
    refused = ask(server, "a", "poet", prompt="a fox " * 3000)
    assert refused.status == 400 and refused.error()["code"] == "context_length_exceeded", refused
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while not (process := functions_of(server.process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    text_of(ask(server, "a", "poet"))
    assert functions_of(server.process.pid) == process


def test_answers_keep_to_their_grammar(server):
    for tenant, model in (("a", "poet"), ("b", "demo")):
        answer = ask(server, tenant, model, guided_regex="(up|down)[0-9]{2}", ignore_eos=False)
        assert re.fullmatch("(up|down)[0-9]{2}", text_of(answer)), answer


def test_names_lead_to_the_same_function(server):
    assert text_of(ask(server, "a", "ft:demo:a:poet")) == text_of(ask(server, "a", "poet"))
    base = ask(server, "b", "gpt-4o-mini")
    assert base.json()["model"] == "demo"
    assert text_of(base) == text_of(ask(server, "b", "demo"))
    assert text_of(base) != text_of(ask(server, "b", "pirate"))
    card = server.get("/v1/models/gpt-4o-mini")
    assert card.status == 200 and card.json()["id"] == "demo"


def test_the_answers_are_those_of_serve(server):
    adapters = [option for name in ("poet", "pirate")
                for option in ("--adapter", f"{name}={MODEL}-adapters/{name}")]
    with Server(*adapters) as plain:
        for tenant, names in MODELS.items():
            for name in names:
                expected = plain.complete(max_tokens=16, ignore_eos=True, model=name)["text"]
                assert text_of(ask(server, tenant, name)) == expected


def test_other_tenants_models_and_no_models_are_the_same_404(server):
    errors = set()
    for name in ("pirate", "ft:demo:b:pirate", "nothing"):
        with pytest.raises(openai.NotFoundError) as caught:
            client(server, "a").completions.create(model=name, prompt="x")
        error = caught.value.body
        assert error["code"] == "model_not_found" and error["param"] == "model"
        errors.add(error["message"].replace(name, "NAME"))
        card = server.get("/v1/models/" + name)
        assert card.status == 404
        errors.add(card.error()["message"].replace(name, "NAME"))
    assert len(errors) == 1
    assert server.post("/v1/completions", {"model": "demo", "prompt": "x"},
                       headers={"Authorization": "Bearer sk-unknown"}).status == 401


def test_tokenize_needs_a_model_of_the_caller(server):
    answer = server.post("/tokenize", {"model": "poet", "prompt": "hello"})
    assert answer.status == 200
    tokens = answer.json()["tokens"]
    back = server.post("/detokenize", {"model": "demo", "tokens": tokens})
    assert back.status == 200 and "hello" in back.json()["prompt"]
    assert server.post("/tokenize", {"model": "pirate", "prompt": "x"}).status == 404
    assert server.post("/tokenize", {"prompt": "x"}).error()["param"] == "model"


def test_after_the_idle_time_no_function_process_is_left(tmp_path):
    with gateway(EXAMPLE, usage=tmp_path / "usage.db") as server:
        for tenant, names in MODELS.items():
            for name in names:
                text_of(ask(server, tenant, name))
        assert server.metrics()["gateway_starts_ready_total"] >= 4
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while functions_of(server.process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        text_of(ask(server, "a", "poet"))


class CallThatGoesOn:
    """A call that computes until the block ends, on any machine: its process is stopped, and has
    been since before the call. The model has no process before. `machine`: the process that starts
    it, the gateway or an agent."""

    def __init__(self, server, tenant, model, machine=None, **fields):
        pid = (machine or server).process.pid
        before = functions_of(pid)
        text_of(ask(server, tenant, model))
        self.process, = set(functions_of(pid)) - set(before)
        wait_until_idle(self.process)
        self.answers = []
        self.thread = threading.Thread(
            target=lambda: self.answers.append(ask(server, tenant, model, **fields)))
        calls = calls_of(server, tenant)
        os.kill(self.process, signal.SIGSTOP)
        self.thread.start()
        deadline = time.monotonic() + LONG_WAIT / 2 * PATIENCE
        while calls_of(server, tenant) == calls:
            assert time.monotonic() < deadline and not self.answers, self.answers
            time.sleep(0.02)

    def answer(self):
        self.thread.join(2 * LONG_WAIT * PATIENCE)
        return self.answers[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGCONT)
        self.thread.join(2 * LONG_WAIT * PATIENCE)


def wait_until_idle(process):
    """Until every thread of the process waits. A function that is stopped before that may have a
    turn; it does not return it, so that the server weakens it and lets it go on."""
    def states():
        return {stat.read_text().rpartition(")")[2].split()[0]
                for stat in pathlib.Path(f"/proc/{process}/task").glob("*/stat")}
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while states() != {"S"}:
        assert time.monotonic() < deadline, states()
        time.sleep(0.01)


def calls_of(server, tenant):
    """The calls of the tenant until now, with those that run."""
    state = server.get("/gateway/state", headers={"Authorization": "Bearer " + KEYS[tenant]})
    return sum(function["calls"] for function in state.json()["functions"])


def test_a_killed_function_fails_its_call_and_no_other(server):
    stop_functions(server)
    with (CallThatGoesOn(server, "a", "poet", stream=True) as victim,
          CallThatGoesOn(server, "b", "pirate", stream=True) as other):
        os.kill(victim.process, signal.SIGKILL)
        failed = victim.answer().text
        assert '"error"' in failed and "[DONE]" not in failed, failed[-500:]
        assert not other.answers
    chunks = sse_events(other.answer().text)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    text_of(ask(server, "a", "poet"))


def test_a_full_machine_lets_calls_wait_for_an_idle_function(tmp_path):
    with gateway(write_config(tmp_path, *NO_GOALS), "--max-functions", "1") as small:
        answers = []

        def call(tenant, model):
            answers.append(text_of(ask(small, tenant, model, max_tokens=200)))

        threads = [threading.Thread(target=call, args=(tenant, name))
                   for tenant, names in MODELS.items() for name in names]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert len(functions_of(small.process.pid)) <= 2  # one that ends, one that starts
            time.sleep(0.02)
        assert len(answers) == 4


def test_a_checkpoint_without_weights_is_refused_with_its_line(tmp_path):
    model = tmp_path / "half"
    model.mkdir()
    shutil.copy(os.path.join(MODEL, "config.json"), model)
    config = write_config(tmp_path, (f'"{ROOT}/models/demo"', '"half"'))
    done = subprocess.run([BINARY, "gateway", "--config", str(config), "--port", "0", "--usage",
                           str(tmp_path / "usage.db")],
                          capture_output=True, text=True, check=False, timeout=LONG_WAIT * PATIENCE)
    line = config.read_text().splitlines().index('directory = "half"') + 1
    assert done.returncode != 0
    assert f"{config}:{line}:1: backbone.directory: '{model}'" in done.stderr, done.stderr
    assert "neither model.safetensors nor" in done.stderr, done.stderr
    assert "give the directory of a Hugging Face checkpoint" in done.stderr, done.stderr


def test_quotas_are_refused_with_the_time_to_wait(tmp_path):
    config = write_config(tmp_path, ("concurrency = 8", "concurrency = 1"),
                          ("requests_per_minute = 600\n\n[[backbone]]",
                           "requests_per_minute = 2\n\n[[backbone]]"), NOT_IDLE_SOON)
    with gateway(config) as server:
        text_of(ask(server, "b", "demo"))
        text_of(ask(server, "b", "demo"))
        refused = ask(server, "b", "demo")
        assert refused.status == 429 and refused.error()["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        with CallThatGoesOn(server, "a", "poet") as call:
            refused = ask(server, "a", "demo")
            assert refused.status == 429 and "concurrency" in refused.error()["message"]
        text_of(call.answer())


def test_a_call_that_would_miss_its_goal_is_refused(tmp_path):
    config = write_config(tmp_path, ("ttft_slo_ms = 1000", "ttft_slo_ms = 100"), NOT_IDLE_SOON)
    with gateway(config, "--max-num-seqs", "1") as server:
        with CallThatGoesOn(server, "a", "poet") as call:
            refused = ask(server, "a", "poet")
            assert refused.status == 429 and "goal of 100 ms" in refused.error()["message"]
            assert int(refused.headers["retry-after"]) >= 1
            text_of(ask(server, "a", "demo"))  # another function
        text_of(call.answer())
        text_of(ask(server, "a", "poet"))


def test_fill_or_expire_holds_a_lone_call(tmp_path):
    config = write_config(tmp_path, ("[defaults]", 'batching = "fill-or-expire"\n[defaults]'))
    with gateway(config) as server:
        held = 0
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while held < 2:  # when the gateway knows how long prompts take
            assert time.monotonic() < deadline
            begin = time.monotonic()
            answer = ask(server, "a", "poet", max_tokens=1)
            if answer.status == 429:  # held, and then the machine did other things until too late
                continue
            text_of(answer)
            # Nearly its goal of 1 s.
            held = held + 1 if time.monotonic() - begin > 0.3 else 0


def test_the_metrics_are_documented(server):
    text_of(ask(server, "a", "poet"))
    with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as stream:
        documented = stream.read()
    metrics = server.metrics()
    own = {name.split("{")[0] for name in metrics if name.startswith("gateway_")}
    assert len(own) == 14
    for name in own:
        assert f"`{name}`" in documented, name
    assert metrics["gateway_functions"] == 4
    assert metrics["gateway_starts_ready_total"] >= 1
    assert metrics["gateway_start_seconds_total"] > 0
    assert metrics['gateway_instances{state=ready}'] >= 1


def test_a_warm_worker_becomes_the_next_function_and_is_never_used_twice(tmp_path):
    config = write_config(tmp_path, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS)
    with gateway(config, "--warm-workers", "1") as server:
        assert not functions_of(server.process.pid)  # nothing was called
        texts = {name: text_of(ask(server, "a", name)) for name in MODELS["a"]}

        def await_processes(most_ready):
            """Until the worker is there beside as many functions; none of those is starting."""
            deadline = time.monotonic() + LONG_WAIT * PATIENCE
            while True:
                metrics = server.metrics()
                ready = metrics['gateway_instances{state=ready}']
                if (ready <= most_ready and metrics['gateway_instances{state=starting}'] == 0 and
                        len(functions_of(server.process.pid)) == ready + 1):
                    return
                assert time.monotonic() < deadline, (metrics, functions_of(server.process.pid))
                time.sleep(0.05)

        def await_worker():
            # The worker is there before the functions end, so it is the process that is left.
            await_processes(len(MODELS["a"]))
            stop_instances(server)
            await_processes(0)
            time.sleep(0.2)  # most are ready then
            return functions_of(server.process.pid)[0]

        seen = set()
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        for name in MODELS["a"]:
            before = server.metrics()["gateway_warm_starts_total"]
            while server.metrics()["gateway_warm_starts_total"] == before:
                assert time.monotonic() < deadline
                worker = await_worker()
                assert worker not in seen
                seen.add(worker)
                assert text_of(ask(server, "a", name)) == texts[name]
            assert server.metrics()["gateway_warm_starts_total"] == before + 1
            assert worker in functions_of(server.process.pid)
    with gateway(write_config(tmp_path, ("1GiB", "7MiB")), "--warm-workers", "1") as server:
        text_of(ask(server, "a", "poet"))
        await_gone(functions_of(server.process.pid))
        time.sleep(2 * PATIENCE)
        assert not functions_of(server.process.pid)  # no room beside the backbone


def cpu_seconds(pid):
    """The CPU time of all threads of a process, as the kernel counts it."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
        fields = stream.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn_seconds(server):
    return sum(value for name, value in server.metrics().items()
               if name.startswith("function_turn_seconds_total"))


# The cores that a function of two threads may use without a turn, and the seconds at once
# (docs/isolation.md#turns): its main thread talks to the gateway.
BESIDE_TURNS = 0.25 + 2 * 0.05
AT_ONCE = 0.25


def test_the_kernel_counts_no_more_cpu_time_than_turns(server):
    stop_functions(server)
    text_of(ask(server, "a", "poet"))  # its start is over
    process, = functions_of(server.process.pid)
    start, used, turns = time.monotonic(), cpu_seconds(process), turn_seconds(server)
    for _ in range(2):
        text_of(ask(server, "a", "poet", max_tokens=1000))
    used = cpu_seconds(process) - used
    may = BESIDE_TURNS * (time.monotonic() - start) + AT_ONCE
    assert used > 0.1, "it computes"
    cores = min(2, len(os.sched_getaffinity(0)))
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    # The last turn counts once it has ended.
    while used > (turn_seconds(server) - turns) * cores + may:
        assert time.monotonic() < deadline, (used, turn_seconds(server) - turns, may)
        time.sleep(0.02)


def backbones_of(server):
    """The backbones in the gateway's memory."""
    folder = f"/proc/{server.process.pid}/fd"
    links = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(os.path.join(folder, name)))
    return sum("memfd:sluice-backbone" in link for link in links)


def await_backbones(server, count):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while backbones_of(server) != count:
        assert time.monotonic() < deadline, backbones_of(server)
        time.sleep(0.05)


def test_backbones_share_the_memory_for_idle_ones(tmp_path):
    """Two models with room for one: the one that is called more often stays."""
    second = ('[[adapter]]\nname = "poet"', '[[backbone]]\nname = "other"\n'
              f'directory = "{ROOT}/models/demo"\ntenants = ["b"]\n\n[[adapter]]\nname = "poet"')
    lasting = (ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS)
    with gateway(write_config(tmp_path, second, ("1GiB", "9MiB"), *lasting)) as server:
        text = text_of(ask(server, "b", "demo"))
        for _ in range(30):  # however long either load took
            assert text_of(ask(server, "b", "other")) == text
        assert backbones_of(server) == 2
        stop_functions(server)
        await_backbones(server, 1)
        assert text_of(ask(server, "b", "other")) == text  # still there
        assert backbones_of(server) == 1
        assert text_of(ask(server, "b", "demo")) == text  # loaded again
        assert backbones_of(server) == 2
    with gateway(write_config(tmp_path, ("1GiB", "1MiB"), *lasting)) as server:
        text_of(ask(server, "a", "poet"))
        stop_functions(server)
        await_backbones(server, 0)
        text_of(ask(server, "a", "poet"))


def usage_of(server, key, query=""):
    answer = server.get("/v1/usage" + query, headers={"Authorization": "Bearer " + key})
    assert answer.status == 200, answer
    return answer.json()


def await_samples(server, count):
    """All functions are sampled together, and with them the platform, whose memory costs."""
    def cost():
        return [row["memory_gb_seconds"] for row in usage_of(server, ADMIN)["data"]
                if row["function"] == "(platform)"]

    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    for _ in range(count):
        before = cost()
        while cost() == before:
            assert time.monotonic() < deadline, before
            time.sleep(0.1)


def test_usage_is_that_of_the_caller_and_survives_a_kill(tmp_path):
    config = write_config(tmp_path, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS)
    with gateway(config, expected_status=-signal.SIGKILL) as server:
        answers = [ask(server, "a", "poet", max_tokens=200), ask(server, "a", "ft:demo:a:poet"),
                   ask(server, "b", "demo")]
        counts = [answer.json()["usage"] for answer in answers]
        await_samples(server, 2)
        own = usage_of(server, KEYS["a"])
        poet, = own["data"]
        assert (poet["tenant"], poet["function"], poet["requests"]) == ("a", "ft:demo:a:poet", 2)
        assert poet["prompt_tokens"] == sum(one["prompt_tokens"] for one in counts[:2])
        assert poet["output_tokens"] == sum(one["completion_tokens"] for one in counts[:2])
        assert poet["core_seconds"] > 0 and poet["cost"] > 0
        assert poet["memory_gb_seconds"]["host"]["active"] > 0
        stop_functions(server)
        await_samples(server, 2)
        before = usage_of(server, KEYS["a"])  # which is written before it is answered
        assert before["data"][0]["memory_gb_seconds"]["host"]["idle"] > 0
        rows = {(row["tenant"], row["function"]): row for row in usage_of(server, ADMIN)["data"]}
        assert set(rows) == {("a", "ft:demo:a:poet"), ("b", "demo"), (None, "(platform)")}
        turns = {labels: value for labels, value in server.metrics().items()
                 if labels.startswith("function_turn_seconds_total")}
        billed = rows["a", "ft:demo:a:poet"]["core_seconds"] + rows["b", "demo"]["core_seconds"]
        # A turn has the two threads of --threads, and at most the cores that it may use.
        cores = min(2, len(os.sched_getaffinity(0)))
        assert billed == pytest.approx(sum(turns.values()) * cores, rel=0.01)
        assert server.get("/v1/usage", headers={"Authorization": "Bearer x"}).status == 401
        assert server.get("/v1/usage?start_date=now").status == 400
        server.process.kill()
        server.wait()
    with gateway(config) as server:
        assert usage_of(server, KEYS["a"]) == before
        text_of(ask(server, "a", "poet"))
        assert usage_of(server, KEYS["a"])["data"][0]["requests"] == 3
        text = server.get("/v1/usage?format=csv").text
        line, = csv.DictReader(text.splitlines())
        assert line["requests"] == "3" and line["tenant"] == "a"


def await_writes(folder, count):
    """Until the file of usage has changed so often, at different moments."""
    def changed():
        times = [0]
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):  # a journal that is done
                if entry.name.startswith("usage.db"):
                    times.append(entry.stat().st_mtime_ns)
        return max(times)

    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    for _ in range(count):
        before = changed()
        while changed() < before + 200_000_000:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_usage_is_lost_since_the_last_write_at_most_and_never_counted_twice(tmp_path):
    """The gateway is killed under load, several times; each answer counts once. It writes each
    second."""
    config = write_config(tmp_path, ("requests_per_minute = 600", "requests_per_minute = 60000"),
                          ("concurrency = 8", "concurrency = 80"), *NO_GOALS)
    answered = 0
    for _ in range(3):
        with gateway(config, expected_status=-signal.SIGKILL) as server:
            times = []

            def call():
                while True:
                    try:
                        text_of(ask(server, "b", "demo", max_tokens=4))
                    except OSError:
                        return
                    times.append(time.monotonic())

            threads = [threading.Thread(target=call) for _ in range(3)]
            for thread in threads:
                thread.start()
            server.await_status(lambda _: len(times) > 3)
            known = len(times)
            await_writes(tmp_path, 3)  # the first may have begun before, without the last of these
            server.process.kill()
            server.wait()
            for thread in threads:
                thread.join(2 * LONG_WAIT * PATIENCE)
        with gateway(config) as server:
            rows = usage_of(server, KEYS["b"])["data"]
            requests = rows[0]["requests"] if rows else 0
        # Up to three requests were accepted and not answered.
        assert answered + known <= requests <= answered + len(times) + 3
        answered = requests


def test_a_tenant_without_money_left_is_refused(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\nrequest = 1\n[[tier]]\nprice = 0.6\n')
    config = write_config(tmp_path, ("money_per_day = 1.50", "money_per_day = 1.0"))
    with gateway(config, "--prices", str(prices)) as server:
        text_of(ask(server, "a", "poet"))
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while (refused := ask(server, "a", "poet")).status == 200:  # settled each second
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert refused.status == 429 and refused.error()["code"] == "insufficient_quota"
        assert "money_per_day" in refused.error()["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 86400
        text_of(ask(server, "b", "demo"))
        assert server.get("/v1/models").status == 200


def test_two_gateways_do_not_share_a_file_of_usage(tmp_path):
    config = write_config(tmp_path)
    with gateway(config):
        done = subprocess.run([BINARY, "gateway", "--config", str(config), "--port", "0", "--usage",
                               str(tmp_path / "usage.db")], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 1 and "--usage" in done.stderr, done


def test_a_reload_changes_names_and_leaves_running_requests_alone(tmp_path):
    path = write_config(tmp_path, NOT_IDLE_SOON, *NO_GOALS)
    with gateway(path) as server:
        with CallThatGoesOn(server, "a", "poet") as call:
            write_config(tmp_path, ('name = "poet"', 'name = "bard"'), NOT_IDLE_SOON, *NO_GOALS)
            server.process.send_signal(signal.SIGHUP)
            server.await_stderr(f"info {path}: 4 functions")
            assert ask(server, "a", "poet").status == 404
            text_of(ask(server, "a", "bard"))
            assert not call.answers
        text_of(call.answer())
        path.write_text("[[tenant]]\nname = 1\n")
        server.process.send_signal(signal.SIGHUP)
        server.await_stderr("those from before stay")
        text_of(ask(server, "a", "bard"))


def test_a_pinned_adapter_must_have_its_content(tmp_path):
    folder = tmp_path / "poet"
    shutil.copytree(MODEL + "-adapters/poet", folder)
    digest = subprocess.run(
        f"cat {folder}/adapter_config.json {folder}/adapter_model.safetensors | sha256sum",
        shell=True, capture_output=True, text=True, check=True).stdout.split()[0]
    before = f'directory = "{ROOT}/models/demo-adapters/poet"'
    for pinned, status in ((digest, 200), ("0" * 64, 503)):
        path = write_config(tmp_path, (before, f'directory = "{folder}@sha256:{pinned}"'))
        with gateway(path) as server:
            answer = ask(server, "a", "poet")
            assert answer.status == status, answer
            if status == 503:
                assert str(folder) not in answer.error()["message"]
                server.await_stderr(digest)


def openssl(*arguments):
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True,
                          check=True).stdout


def make_key(path):
    """A new private key; returns its public key as a functions file has it."""
    openssl("genpkey", "-algorithm", "ed25519", "-out", path)
    return openssl("pkey", "-in", path, "-pubout").splitlines()[1]


def test_an_adapter_needs_a_signature_by_a_key_of_the_file(tmp_path):
    folder = tmp_path / "poet"
    shutil.copytree(MODEL + "-adapters/poet", folder)
    keys = {name: make_key(tmp_path / name) for name in ("operator", "other")}
    files = (f'directory = "{ROOT}/models/demo-adapters/poet"', f'directory = "{folder}"')

    def write(*names):
        signers = ", ".join(f'"{keys[name]}"' for name in names)
        return write_config(tmp_path, files,
                            ("[defaults]", f"require_signature = [{signers}]\n\n[defaults]"))

    def sign(name):
        done = subprocess.run([BINARY, "adapter", "sign", folder, "--key", tmp_path / name],
                              capture_output=True, text=True, check=True)
        assert f'require_signature = "{keys[name]}"' in done.stdout, done

    path = write("operator")
    with gateway(path) as server:
        refused = ask(server, "a", "poet")
        assert refused.status == 503 and str(folder) not in refused.error()["message"], refused
        server.await_stderr("adapter.sig is missing")
        text_of(ask(server, "a", "demo"))  # a base model needs none
        sign("other")
        assert ask(server, "a", "poet").status == 503
        server.await_stderr("is not a signature of these files")
        sign("operator")
        text_of(ask(server, "a", "poet"))
        # The adapter is in memory, but a later file asks for another key.
        write("other")
        server.process.send_signal(signal.SIGHUP)
        server.await_stderr(f"info {path}: 4 functions")
        assert ask(server, "a", "poet").status == 503
        sign("other")
        text_of(ask(server, "a", "poet"))


def test_a_signature_made_with_openssl_alone_is_taken(tmp_path):
    folder = tmp_path / "poet"
    shutil.copytree(MODEL + "-adapters/poet", folder)
    key = make_key(tmp_path / "key")
    subprocess.run(
        "set -e; cd poet; digest=$(cat adapter_config.json adapter_model.safetensors | sha256sum)\n"
        "printf 'sluice adapter sha256:%s' \"${digest%% *}\" > ../text\n"
        "openssl pkeyutl -sign -rawin -inkey ../key -in ../text -out adapter.sig",
        shell=True, check=True, cwd=tmp_path)
    path = write_config(
        tmp_path, (f'directory = "{ROOT}/models/demo-adapters/poet"', f'directory = "{folder}"'),
        ("[defaults]", f'require_signature = "{key}"\n\n[defaults]'))
    with gateway(path) as server:
        text_of(ask(server, "a", "poet"))


def test_no_process_is_left_after_its_end(tmp_path):
    path = write_config(tmp_path, NOT_IDLE_SOON)
    for number in (signal.SIGTERM, signal.SIGKILL):
        server = gateway(path, expected_status=0 if number == signal.SIGTERM else -number)
        with server:
            text_of(ask(server, "a", "poet"))
            left = functions_of(server.process.pid)
            assert left
            server.process.send_signal(number)
            server.wait()
            await_gone(left)


def test_errors_of_the_file_are_told_at_the_start(tmp_path):
    path = write_config(tmp_path, ('backbone = "demo"\ntenant = "a"',
                                   'backbone = "demi"\ntenant = "a"'))
    done = subprocess.run([BINARY, "gateway", "--config", str(path), "--port", "0"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "did you mean 'demo'?" in done.stderr and "functions.toml:" in done.stderr
    done = subprocess.run([BINARY, "gateway"], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 2 and "--config" in done.stderr
