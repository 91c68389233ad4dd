"""lm-eval's `local-completions` on a task made here: the likelihoods that it gets from the server
are those of a forward pass in numpy, which shares no code with the server. Its environment is
build/venv-lm-eval (`make venv-lm-eval`)."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer

from serving import MODEL, NAME, Server

QUESTIONS = [
    {"question": "Once upon a time there was a little",
     "choices": [" fox", " boat", " xylophone"], "answer": 1},
    {"question": "The sun was", "choices": [" warm and bright.", " of 7", " sad"], "answer": 0},
    {"question": "She went to the", "choices": [" sea", " sea and saw a big fish.", "?"],
     "answer": 0},
    {"question": "\"Hello\", said the bear, \"my name", "choices": [" is Tom.\"", " Tom is", " 99"],
     "answer": 0},
]
TASK = """
task: foxes
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
"""
ROLLING = """
task: stories
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}} {{{{choices[1]}}}}"
metric_list:
  - metric: bits_per_byte
"""
# The server computes in F32, the reference in F64.
TOLERANCE = 1e-3


@pytest.fixture(name="server", scope="module")
def fixture_server():
    with Server("--max-model-len", "512", "--dtype", "float32") as server:
        yield server


class Reference:
    """The demo model, a Llama, in numpy."""

    def __init__(self):
        with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        with open(os.path.join(MODEL, "model.safetensors"), "rb") as file:
            data = file.read()
        size = int.from_bytes(data[:8], "little")
        self.tensors = {}
        for name, entry in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            assert entry["dtype"] == "BF16", entry
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            bits = np.frombuffer(data[begin:end], dtype="<u2").astype("<u4") << 16
            self.tensors[name] = bits.view("<f4").astype(np.float64).reshape(entry["shape"])

    def norm(self, x, name):
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.tensors[name]

    def rotated(self, x):
        """x: [tokens, heads, width]"""
        half = x.shape[-1] // 2
        frequency = self.config["rope_theta"] ** (-np.arange(half) / half)
        angle = np.arange(x.shape[0])[:, None, None] * frequency
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * np.cos(angle) - second * np.sin(angle),
                               second * np.cos(angle) + first * np.sin(angle)], axis=-1)

    def attention(self, x, prefix):
        heads, width = self.config["num_attention_heads"], self.config["head_dim"]
        q, k, v = ((x @ self.tensors[f"{prefix}.self_attn.{name}_proj.weight"].T)
                   .reshape(len(x), -1, width) for name in "qkv")
        q, k = self.rotated(q), self.rotated(k)
        k, v = (np.repeat(part, heads // part.shape[1], axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
        scores += np.triu(np.full((len(x), len(x)), -np.inf), 1)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1)
        return mixed @ self.tensors[f"{prefix}.self_attn.o_proj.weight"].T

    def logprobs(self, ids):
        """[tokens, vocabulary]: of the token behind each one."""
        weights = self.tensors
        x = weights["model.embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, f"{prefix}.input_layernorm.weight"), prefix)
            inner = self.norm(x, f"{prefix}.post_attention_layernorm.weight")
            gate = inner @ weights[f"{prefix}.mlp.gate_proj.weight"].T
            up = inner @ weights[f"{prefix}.mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{prefix}.mlp.down_proj.weight"].T
        logits = self.norm(x, "model.norm.weight") @ weights["model.embed_tokens.weight"].T
        highest = logits.max(axis=-1, keepdims=True)
        return logits - highest - np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))

    def likelihood(self, context, continuation):
        """The continuation's, behind the context; and whether each of its tokens is the best."""
        table = self.logprobs(np.array(context + continuation))[len(context) - 1:-1]
        best = bool((table.argmax(axis=-1) == continuation).all())
        return float(table[np.arange(len(continuation)), continuation].sum()), best


def evaluate(server, folder, task):
    """Runs the program as its users do. Returns its samples."""
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    (folder / "task.yaml").write_text(task.format(data=folder / "data.jsonl"))
    arguments = (f"model={NAME},base_url={server.base}/v1/completions,num_concurrent=2,"
                 f"max_retries=1,tokenizer_backend=huggingface,tokenizer={MODEL},tokenized_requests=True")
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", arguments,
         "--tasks", "stories" if task is ROLLING else "foxes", "--include_path", str(folder),
         "--batch_size", "4", "--output_path", str(folder / "out"), "--log_samples"],
        capture_output=True, text=True, timeout=300, check=False, cwd=folder,
        env={**os.environ, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1",
             "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    file, = (folder / "out").rglob("samples_*.jsonl")
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(samples) == len(QUESTIONS)
    return samples


def test_likelihoods_of_choices(server, tmp_path):
    reference, tokenizer = Reference(), Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    checked = 0
    for sample in evaluate(server, tmp_path, TASK):
        question = sample["doc"]["question"]
        context = tokenizer.encode(question, add_special_tokens=False).ids
        for choice, response in zip(sample["doc"]["choices"], sample["resps"], strict=True):
            whole = tokenizer.encode(question + choice, add_special_tokens=False).ids
            assert whole[:len(context)] == context
            expected, best = reference.likelihood(context, whole[len(context):])
            found, greedy = response[0]
            assert float(found) == pytest.approx(expected, abs=TOLERANCE), (question, choice)
            assert str(greedy) == str(best), (question, choice)
            checked += 1
    assert checked == 12


def test_likelihoods_of_whole_texts(server, tmp_path):
    reference, tokenizer = Reference(), Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    for sample in evaluate(server, tmp_path, ROLLING):
        ids = tokenizer.encode(sample["target"], add_special_tokens=False).ids
        # lm-eval puts the token of a text's beginning in front.
        expected, _ = reference.likelihood([tokenizer.token_to_id("<|bos|>")], ids)
        found = sample["resps"][0]
        while isinstance(found, list):
            found = found[0]
        assert float(found) == pytest.approx(expected, abs=TOLERANCE), sample["target"]
