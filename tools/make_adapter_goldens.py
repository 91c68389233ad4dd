#!/usr/bin/env python3
"""Writes tests/golden/adapters: the results of PEFT for small random LoRA adapters of the golden
models, one for each family, and two with DoRA.

    python3 tools/make_adapter_goldens.py [NAME...]

Needs tools/requirements.txt. Adapters are made from a recipe (checkpoint_recipe.py), so the files
hold names and shapes only; adapter_config.json is what save_pretrained writes. PEFT reads the
adapter from its files and computes in float64.
"""

import json
import os
import sys
import tempfile

import peft
import safetensors.torch
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checkpoint_layout as layout  # noqa: E402
import checkpoint_recipe as recipe  # noqa: E402
import golden_cases  # noqa: E402
import make_goldens as models  # noqa: E402

OUTPUT = os.path.join(models.ROOT, "tests", "golden", "adapters")
SCALE = 2.0 ** -25  # of the recipe: values in [-0.25, 0.25)
STEPS = 12

CASES = {
    "llama": ("llama-gqa-tied-f32", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}),
    "mistral": ("mistral-window", {
        "r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj", "down_proj"],
        "layers_to_transform": [0]}),
    "qwen2": ("qwen2-gqa7-tied", {
        "r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": "all-linear",
        "rank_pattern": {"^model.layers.0.self_attn.q_proj": 7, "up_proj": 2},
        "alpha_pattern": {"layers.1.mlp.(up|down)_proj": 3}}),
    "qwen3": ("qwen3-tied", {
        "r": 2, "lora_alpha": 4, "target_modules": r".*layers\.\d+\..*_proj",
        "exclude_modules": ["k_proj"]}),
    "dora": ("llama-gqa-tied-f32", {
        "r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": "all-linear"}),
    # Its queries, keys and values have biases, which DoRA leaves alone.
    "dora-bias": ("qwen2-gqa7-tied", {
        "r": 3, "lora_alpha": 6, "use_dora": True, "use_rslora": True,
        "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"],
        "rank_pattern": {"up_proj": 5}}),
}
# Magnitudes in [0.75, 1.25): gains of a few tenths, which change tokens.
MAGNITUDE = 1.0


def write_adapter(directory, base, fields, seed):
    """An adapter of random values in PEFT's files; returns its config and tensors."""
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **fields))
    model.save_pretrained(directory)
    path = os.path.join(directory, "adapter_model.safetensors")
    tensors, listed = {}, []
    for name, old in sorted(safetensors.torch.load_file(path).items()):
        offset = MAGNITUDE if name.endswith(".lora_magnitude_vector") else 0.0
        tensor = layout.Tensor(name, tuple(old.shape), SCALE, offset)
        values = recipe.values(tensor, seed, 0, tensor.elements)
        tensors[name] = torch.from_numpy(values).reshape(old.shape)
        listed.append([name, list(old.shape), SCALE, offset])
    safetensors.torch.save_file(tensors, path)
    model.unload()
    with open(os.path.join(directory, "adapter_config.json")) as text:
        config = json.load(text)
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):
            config[key].sort()  # PEFT writes a set
    config["base_model_name_or_path"] = None
    return config, listed


def make_case(name):
    model_name, fields = CASES[name]
    with open(os.path.join(models.MODELS, model_name, "case.json")) as text:
        golden = json.load(text)
    config, dtype = golden_cases.CASES[model_name]
    seed = golden["seed"]
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as adapter:
        models.write_checkpoint(directory, config, layout.tensors_of(config), seed, dtype)
        adapter_config, tensors = write_adapter(
            adapter, models.load(directory, torch.float64, {}), fields, seed)
        base = models.load(directory, torch.float64, {})
        model = peft.PeftModel.from_pretrained(base, adapter).double().eval()
        prompts = []
        for prompt in golden["prompts"]:
            ids, tokens, logprobs = list(prompt["ids"]), [], []
            for _ in range(STEPS):
                last = torch.log_softmax(models.logits(model, ids)[-1], dim=-1)
                tokens.append(int(last.argmax()))
                logprobs.append(models.number(last.max().item()))
                ids.append(tokens[-1])
            prompts.append({"ids": prompt["ids"], "tokens": tokens, "logprobs": logprobs,
                            "base_tokens": prompt["greedy"][:STEPS]})
    case = {"peft": peft.__version__, "model": model_name, "seed": seed, "config": adapter_config,
            "tensors": tensors, "prompts": prompts}
    os.makedirs(OUTPUT, exist_ok=True)
    with open(os.path.join(OUTPUT, f"{name}.json"), "w") as out:
        fields = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in case.items()
                  if key not in ("tensors", "prompts")]
        for key in ("tensors", "prompts"):
            rows = ",\n".join(json.dumps(row) for row in case[key])
            fields.append(f'"{key}": [\n{rows}\n]')
        out.write("{\n" + ",\n".join(fields) + "\n}\n")
    print(f"{name}: {len(tensors)} tensors; tokens {prompts[0]['tokens']}, base's "
          f"{prompts[0]['base_tokens']}", flush=True)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    for case_name in sys.argv[1:] or CASES:
        make_case(case_name)
