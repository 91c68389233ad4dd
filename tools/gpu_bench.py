"""The benchmark part of gpu_check: what a model of Llama-3-8B's shape does, against what the device
can do and what transformers does with it. Weights are random and made in memory.

Each part is a program of its own with a time limit of its own: one that fails, or is missing, is a
line of the table that says why, and the others run.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import checkpoint_layout

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 128000,
    "eos_token_id": 128001,
}
TINY = {**LLAMA_3_8B, "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "bos_token_id": 1, "eos_token_id": 2}


@dataclass
class Load:
    """The load of the parts; the goals hold for the first load."""

    config: dict
    context: int = 1024       # of a decode
    decode_tokens: int = 128  # of each answer
    prefill: int = 2048       # tokens of a prompt by itself
    budget: int = 512         # tokens of a hybrid step
    hybrid_requests: int = 192
    loaded_layers: int = 4    # of a checkpoint that is read from files
    torch_options: tuple = ()


LOADS = {
    "llama-3-8b": Load(LLAMA_3_8B),
    "tiny": Load(TINY, 48, 8, 96, 32, 12, 2, ("--copy-mib", "64", "--matmul", "128")),
}
BF16_BYTES = 2
SLUICE_LIMIT_S = 60
LEAST_S = 5  # a part is not begun with less left
TORCH_LIMIT_S = {"ceilings": 45, "eager": 75, "compiled": 150}


@dataclass
class Line:
    """One line of the table. `share` is of a ceiling or of a rival, and has a goal."""

    name: str
    figure: str = ""
    share: float = None
    goal: float = None
    problem: str = ""
    missing: bool = False  # the problem is that something is not installed

    @property
    def result(self):
        if self.problem:
            return "skipped" if self.missing else "FAILED"
        if self.share is None or self.goal is None:
            return "measured" if self.goal is None else "no ceiling"
        return "met" if self.share >= self.goal else "missed"


class Shape:
    """Bytes and operations of a model's steps, from its configuration."""

    def __init__(self, config):
        hidden, layers = config["hidden_size"], config["num_hidden_layers"]
        head_dim = hidden // config["num_attention_heads"]
        kv_width = head_dim * config["num_key_value_heads"]
        self.layer_weights = layers * hidden * (2 * hidden + 2 * kv_width
                                                + 3 * config["intermediate_size"])
        self.head_weights = hidden * config["vocab_size"]
        self.kv_bytes_per_token = layers * 2 * kv_width * BF16_BYTES
        self.attention_width = layers * hidden

    def decode_bytes(self, batch, context, dtype="bf16"):
        """Read by one step: every weight but the embedding table, and the KV of each sequence. In
        FP8 are the layers' matrices alone, with a scale in F32 for 128 by 128."""
        layers = (self.layer_weights * (1 + 4 / 128**2) if dtype == "fp8"
                  else self.layer_weights * BF16_BYTES)
        weights = layers + self.head_weights * BF16_BYTES
        return weights + batch * context * self.kv_bytes_per_token

    def prefill_flops(self, tokens):
        """Operations of one prompt: causal attention, and logits of the last token only."""
        return (2 * self.layer_weights * tokens + 2 * self.head_weights
                + 2 * self.attention_width * tokens * tokens)

    def linear_flops(self, tokens, logits):
        return 2 * self.layer_weights * tokens + 2 * self.head_weights * logits


def write_checkpoint(folder, config):
    """BF16 numbers of 2^-7 to 2^-6, of which one piece repeats itself."""
    piece = bytearray(os.urandom(16 << 20))
    piece[1::2] = b"\x3c" * (len(piece) // 2)
    tensors = checkpoint_layout.tensors_of(config)
    size = BF16_BYTES * sum(tensor.elements for tensor in tensors)
    with open(os.path.join(folder, "model.safetensors"), "wb") as stream:
        stream.write(checkpoint_layout.header_bytes(tensors, "bf16"))
        for begin in range(0, size, len(piece)):
            stream.write(memoryview(piece)[:size - begin])
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as stream:
        json.dump(config, stream)


@dataclass
class Outcome:
    """The result of a part: figures, or the reason why there are none."""

    figures: dict = field(default_factory=dict)
    problem: str = ""
    missing: bool = False


def run_limited(command, seconds, cwd=None, env=None):
    """subprocess.run with its output, or None when the command ran longer. Then everything that it
    started is ended too: helpers of a compiler would keep pipes open and the caller waiting."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, \
            tempfile.TemporaryFile("w+", errors="replace") as err:
        # pylint: disable-next=consider-using-with; waited for below, or given up
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=err, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if status is None:
            try:
                process.wait(5)  # one that hangs in the driver cannot be ended
            except subprocess.TimeoutExpired:
                pass
            return None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it said nothing"


def outcome_of(done, limit):
    """The outcome of a program that prints one JSON object. `done` is its CompletedProcess, or None
    if it exceeded its limit."""
    if done is None:
        return Outcome(problem=f"did not end within {limit:.0f} s")
    if done.returncode == 3:
        return Outcome(problem=last_line(done.stderr), missing=True)
    if done.returncode != 0:
        return Outcome(problem=f"exit status {done.returncode}: {last_line(done.stderr)}")
    try:
        figures = json.loads(done.stdout)
    except ValueError:
        figures = None
    if not isinstance(figures, dict):
        return Outcome(problem=f"printed no JSON object: {last_line(done.stdout)}")
    return Outcome(figures)


def padding_of(steps):
    """The share of padding that a kind of step computed, as text."""
    rows, pairs = (100 * steps[key + "_padding"] / max(steps[key], 1)
                   for key in ("matmul_rows", "attention_pairs"))
    return f"padding {rows:.0f} % of matmul rows, {pairs:.0f} % of attention"


def line_of(name, goal, outcome, fill):
    """A line that fill(line, figures) completes. Figures that are not what they should be are this
    line's failure alone."""
    line = Line(name, goal=goal, problem=outcome.problem, missing=outcome.missing)
    if not line.problem:
        try:
            fill(line, outcome.figures)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            line.problem = f"its figures cannot be used: {error!r}"
    return line


class Ceiling:
    """A limit of the device; `rate` is None if it is not known."""

    def __init__(self, name, unit, scale, outcome, key):
        self.rate = None

        def fill(line, figures):
            line.figure = f"{figures[key] / scale:.4g} {unit}"
            self.rate = figures[key]
        self._line = line_of(f"ceiling: {name}", None, outcome, fill)

    def line(self):
        return self._line

    def share(self, rate):
        return rate / self.rate if self.rate else None


class Bench:
    """Runs the parts, one after the other, before `deadline` (time.monotonic)."""

    def __init__(self, runner, options, deadline, say, products="built-in kernels"):
        self.runner = runner
        self.products = products  # what computes products of many rows
        self.device = options.device
        self.python = options.python
        self.deadline = deadline
        self.say = say
        self.load = LOADS[options.shape]
        self.shape = Shape(self.load.config)

    def run(self):
        """The lines of the table."""
        with tempfile.TemporaryDirectory() as model:
            with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as stream:
                json.dump(self.load.config, stream)
            ceilings = self.torch("ceilings", *self.load.torch_options)
            copy = Ceiling("copy in device memory (read and written)", "GB/s", 1e9, ceilings,
                           "copy_bytes_per_second")
            matmul = Ceiling("BF16 matmul", "TFLOP/s", 1e12, ceilings, "matmul_flops_per_second")
            upload = Ceiling("copy from pinned memory to the device", "GB/s", 1e9, ceilings,
                             "upload_bytes_per_second")
            lines = [copy.line(), matmul.line(), upload.line(), self.weights_line(upload)]
            decodes = {batch: self.decode(model, batch) for batch in (1, 16, 64)}
            for batch, outcome in decodes.items():
                lines.append(self.decode_line(batch, outcome, copy))
            lines.append(self.busy_line(16, decodes[16]))
            for batch in (1, 16):
                outcome = self.decode(model, batch, dtype="fp8")
                lines.append(self.decode_line(batch, outcome, copy, "fp8"))
            lines.append(self.prefill_line(model, matmul))
            lines.append(self.prefill_line(model, matmul, "fp8"))
            lines.append(self.hybrid_line(model, matmul))
            for batch in (1, 16):
                lines.append(self.eager_line(model, batch, decodes[batch]))
            for rival, goal in (("eager", 5.0), ("compiled", 1.0)):
                lines.append(self.rival_line(model, rival, goal, decodes[16]))
        return lines

    # ------------------------------------------------------------ programs

    def limited(self, limit, run):
        """run(seconds) within the part's limit and what is left of the whole."""
        left = self.deadline - time.monotonic()
        if left < LEAST_S:
            return Outcome(problem="no time was left", missing=True)
        limit = min(limit, left)
        try:
            return outcome_of(run(limit), limit)
        except OSError as error:
            return Outcome(problem=str(error))

    def torch(self, what, *options):
        self.say(f"torch_bench {what}")
        command = [self.python, os.path.join(self.runner.folder, "torch_bench.py"), what,
                   "--device", self.device, *options]

        return self.limited(TORCH_LIMIT_S[what], lambda limit: run_limited(command, limit))

    def offline(self, name, model, *options, load_format="dummy", dtype="bf16"):
        self.say(name)
        command = ["sluice", "bench", "offline", model, "--load-format", load_format, "--dtype",
                   dtype, "--device", self.device, "--json", "--no-progress", *map(str, options)]
        return self.limited(SLUICE_LIMIT_S, lambda limit: self.runner.run_within(command, limit))

    def decode(self, model, batch, *options, dtype="bf16"):
        """A batch of equal prompts; prefill-first, so that all decode together."""
        load = self.load
        return self.offline(
            f"decode at batch {batch}{' without graphs' if options else ''}"
            f"{' in FP8' if dtype == 'fp8' else ''}", model,
            "--scheduler", "prefill-first", "--batch-size", batch, "--num-prompts", batch,
            "--max-num-seqs", batch, "--input-len", load.context, "--output-len",
            load.decode_tokens + 1, "--max-model-len", load.context + load.decode_tokens + 1,
            *options, dtype=dtype)

    # ------------------------------------------------------------ lines

    def weights_line(self, upload):
        """Files that were just written are in the page cache."""
        with tempfile.TemporaryDirectory() as model:
            try:
                write_checkpoint(model, {**self.load.config,
                                         "num_hidden_layers": self.load.loaded_layers})
                outcome = self.offline("loading weights", model, "--batch-size", 1,
                                       "--num-prompts", 1, "--max-num-seqs", 1, "--input-len", 8,
                                       "--output-len", 1, "--max-model-len", 16,
                                       load_format="auto")
            except OSError as error:
                outcome = Outcome(problem=str(error))

        def fill(line, figures):
            spans = [span for span in figures["startup"] if span.get("copied_bytes")]
            if not spans:
                line.problem, line.missing = "this device reads weights where they lie", True
                return
            copied, seconds = (sum(span[key] for span in spans)
                               for key in ("copied_bytes", "seconds"))
            line.figure = f"{copied / 2**20:.0f} MiB, {copied / seconds / 1e9:.4g} GB/s"
            line.share = upload.share(copied / seconds)
        return line_of("weights from page cache to the device", 0.80, outcome, fill)

    def decode_line(self, batch, outcome, copy, dtype="bf16"):
        def fill(line, figures):
            decode = figures["decode"]
            step = decode["mean_step_ms"] / 1000
            context = self.load.context + self.load.decode_tokens / 2
            read = self.shape.decode_bytes(decode["tokens_per_step"], context, dtype) / step
            line.figure = (f"{step * 1000:.3f} ms a step, {decode['tokens_per_second']:.1f} "
                           f"tokens/s, reads {read / 1e9:.4g} GB/s, {padding_of(decode)}")
            line.share = copy.share(read)
        if dtype == "fp8":
            return line_of(f"decode, FP8 weights, batch {batch}, context {self.load.context}", None,
                           outcome, fill)
        return line_of(f"decode, batch {batch}, context {self.load.context}",
                       {1: 0.80, 64: 0.70}.get(batch), outcome, fill)

    @staticmethod
    def busy_line(batch, outcome):
        def fill(line, figures):
            decode = figures["decode"]
            if "device_busy_seconds" not in decode:
                line.problem, line.missing = "this device does not tell its own times", True
                return
            busy, idle = decode["device_busy_seconds"], decode["device_idle_seconds"]
            line.share = busy / (busy + idle)
            line.figure = f"idle {100 * (1 - line.share):.2f} % between steps"
        return line_of(f"device busy in a decode loop, batch {batch}", 0.95, outcome, fill)

    def prefill_line(self, model, matmul, dtype="bf16"):
        tokens = self.load.prefill
        outcome = self.offline(
            "prefill", model, "--batch-size", 1, "--num-prompts", 8, "--max-num-seqs", 1,
            "--input-len", tokens, "--output-len", 1, "--token-budget", tokens, "--max-model-len",
            tokens + 1, dtype=dtype)

        def fill(line, figures):
            prefill = figures["prefill"]
            prompts = prefill["prefill_tokens"] / tokens
            rate = prompts * self.shape.prefill_flops(tokens) / prefill["seconds"]
            line.figure = (f"{prefill['tokens_per_second']:.0f} tokens/s, "
                           f"{rate / 1e12:.4g} TFLOP/s, {padding_of(prefill)}, "
                           f"products by {'built-in kernels' if dtype == 'fp8' else self.products}")
            line.share = matmul.share(rate)
        if dtype == "fp8":
            return line_of(f"prefill, FP8 weights, {tokens} tokens", None, outcome, fill)
        return line_of(f"prefill, {tokens} tokens", 0.75, outcome, fill)

    def hybrid_line(self, model, matmul):
        load = self.load
        outcome = self.offline(
            "hybrid batches", model, "--num-prompts", load.hybrid_requests, "--max-num-seqs", 64,
            "--input-len", load.context, "--output-len", load.decode_tokens, "--token-budget",
            load.budget, "--max-model-len", load.context + load.decode_tokens, "--num-warmups", 4)

        def fill(line, figures):
            hybrid = figures["hybrid"]
            # Attention is left out, and logits of prompts' ends: the share is at least this.
            flops = self.shape.linear_flops(hybrid["prefill_tokens"] + hybrid["decode_tokens"],
                                            hybrid["decode_tokens"])
            rate = flops / hybrid["seconds"]
            line.figure = (f"{hybrid['tokens_per_second']:.0f} tokens/s, "
                           f"{hybrid['tokens_per_step']:.0f} a step, {rate / 1e12:.4g} TFLOP/s, "
                           f"{padding_of(hybrid)}, products by {self.products}")
            line.share = matmul.share(rate)
        return line_of(f"hybrid batches of at most {load.budget} tokens", 0.62, outcome, fill)

    def eager_line(self, model, batch, graphs):
        def fill(line, figures):
            step = figures["decode"]["mean_step_ms"]
            line.figure = f"{step:.3f} ms a step"
            if not graphs.problem:
                times = step / graphs.figures["decode"]["mean_step_ms"]
                line.figure += f", {times:.2f} times that with graphs"
        return line_of(f"decode without graphs, batch {batch}", None,
                       self.decode(model, batch, "--enforce-eager"), fill)

    def rival_line(self, model, rival, goal, ours):
        outcome = self.torch(rival, "--config", model, "--batch", "16", "--input-len",
                             str(self.load.context), "--output-len",
                             str(self.load.decode_tokens // 2))

        def fill(line, figures):
            theirs = figures["tokens_per_second"]
            line.figure = (f"{figures['step_ms']:.3f} ms a step, {theirs:.1f} tokens/s "
                           f"({figures['version']})")
            if not ours.problem:
                line.share = ours.figures["decode"]["tokens_per_second"] / theirs
        return line_of(f"Sluice over transformers {rival}, batch 16", goal, outcome, fill)


def table(lines):
    text = ["| benchmark | result | share | goal | figures |", "|---|---|---|---|---|"]
    for line in lines:
        share = "-" if line.share is None else f"{line.share:.2f}"
        goal = "-" if line.goal is None else f"{line.goal:.2f}"
        figures = " ".join((line.problem or line.figure).replace("|", "/").split())
        text.append(f"| {line.name} | {line.result} | {share} | {goal} | {figures} |")
    return "\n".join(text) + "\n"
