"""Measures adapters (docs/adapters.md) for function_figures.py: steps of 32 rows with adapters
beside steps of the base model, and loads of adapters beside a stream."""

import json
import os
import random
import statistics
import struct
import subprocess
import tempfile

ROWS = 32
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def shapes(config):
    """(outputs, inputs) of each module of a Llama-like layer."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = head * config["num_attention_heads"]
    keys = head * config["num_key_value_heads"]
    return {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
            "o_proj": (hidden, queries), "gate_proj": (wide, hidden), "up_proj": (wide, hidden),
            "down_proj": (hidden, wide)}


def config_of(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as stream:
        return json.load(stream)


def adapter_bytes(config, rank, modules):
    sizes = shapes(config)
    return 2 * config["num_hidden_layers"] * rank * sum(sum(sizes[name]) for name in modules)


def write_adapter(folder, config, rank, modules, seed):
    """An adapter with small random values in BF16."""
    os.makedirs(folder)
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="ascii") as stream:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank,
                   "target_modules": list(modules)}, stream)
    numbers = random.Random(seed)
    # BF16: the upper half of a float.
    block = b"".join(struct.pack("<f", numbers.uniform(-0.01, 0.01))[2:] for _ in range(32768))
    header, data = {}, 0
    for layer in range(config["num_hidden_layers"]):
        for name in modules:
            outputs, inputs = shapes(config)[name]
            part = "self_attn" if name in ALL[:4] else "mlp"
            for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                size = 2 * shape[0] * shape[1]
                tensor = f"base_model.model.model.layers.{layer}.{part}.{name}.lora_{half}.weight"
                header[tensor] = {
                    "dtype": "BF16", "shape": shape, "data_offsets": [data, data + size]}
                data += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.write((block * (data // len(block) + 1))[:data])


def step_ms(a, *options):
    """The mean decode step of 32 sequences."""
    done = subprocess.run(
        [a.binary, "bench", "offline", a.model, "--batch-size", str(ROWS), "--max-num-seqs",
         str(ROWS), "--num-prompts", str(ROWS), "--lengths", f"fixed:16,{a.steps + 1}", "--json",
         "--kv-cache-memory", "256MiB", *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["decode"]["mean_step_ms"]


def steps(a):
    """Medians of rounds in turns; each is a process of its own, and the base's is before it."""
    config = config_of(a.model)
    weights = sum(os.path.getsize(os.path.join(a.model, name)) for name in os.listdir(a.model)
                  if name.endswith(".safetensors"))
    with tempfile.TemporaryDirectory() as folder:
        options = {}
        for kind, modules in (("all", ALL), ("qv", ("q_proj", "v_proj"))):
            options[kind] = ["--max-loras", str(ROWS)]
            for i in range(ROWS):
                path = os.path.join(folder, f"{kind}{i}")
                write_adapter(path, config, 16, modules, i)
                options[kind] += ["--adapter", f"{kind}{i}={path}"]
        each = {kind: ",".join(f"{kind}{i}" for i in range(ROWS)) for kind in options}
        one = ",".join(["all0"] + ["base"] * (ROWS - 1))
        cases = [
            ("32 adapters of rank 16, all modules", "all", ["--model-name", each["all"]],
             ROWS * adapter_bytes(config, 16, ALL)),
            ("32 adapters of rank 16, q and v", "qv", ["--model-name", each["qv"]],
             ROWS * adapter_bytes(config, 16, ("q_proj", "v_proj"))),
            ("one row of an adapter, 31 of the base", "all", ["--model-name", one],
             adapter_bytes(config, 16, ALL)),
            ("32 registered, none used", "all", [], 0)]
        ratios = {case[0]: [] for case in cases}
        for _ in range(a.rounds):
            for name, kind, more, _ in cases:
                base = step_ms(a)
                ratios[name].append(base / step_ms(a, *options[kind], *more))
    for name, _, _, extra in cases:
        wanted = weights / (weights + extra)
        got = statistics.median(ratios[name])
        print(f"{ROWS} rows, {name}: base's step / step {got:.3f} (of {a.rounds}: "
              f"{min(ratios[name]):.3f} to {max(ratios[name]):.3f}); ratio of bytes read "
              f"{wanted:.3f}, of that {got / wanted:.3f}")


def loads(a, make_server):
    """Calls of adapters beside a stream of the base model: always the same adapter, then two that
    take turns in one slot, so that each call loads one."""
    config = config_of(a.model)
    with tempfile.TemporaryDirectory() as folder:
        options = ["--adapter-slots", "1"]
        for i in range(2):
            path = os.path.join(folder, f"x{i}")
            write_adapter(path, config, 16, ALL, i)
            options += ["--adapter", f"x{i}={path}"]
        with make_server(a.binary, a.model, 1, "--snapshot", "off", "--max-num-seqs", "8",
                         "--kv-cache-memory", "256MiB", *options) as server:
            first, gaps = {"kept": [], "loaded": []}, {"kept": [], "loaded": []}
            for _ in range(a.rounds):
                for kind in ("kept", "loaded"):
                    server.stream(0, 1, 16, called="x0")
                    stream = server.start_stream(0, a.steps * 8)
                    for call in range(4):
                        other = "x0" if kind == "kept" or call % 2 else "x1"
                        first[kind].append(server.stream(0, 1, 16, called=other)[0])
                    gaps[kind] += stream()
    extra = 1e3 * (statistics.median(first["loaded"]) - statistics.median(first["kept"]))
    ninety = {kind: sorted(all_)[int(len(all_) * 0.99)] for kind, all_ in gaps.items()}
    size = adapter_bytes(config, 16, ALL) / 1e6
    print(f"an adapter of {size:.0f} MB into a running batch: first token "
          f"{extra:.1f} ms later (medians of {len(first['loaded'])}); P99 of the stream's "
          f"gaps {1e3 * ninety['loaded']:.1f} ms, without loads {1e3 * ninety['kept']:.1f} ms, "
          f"ratio {ninety['loaded'] / ninety['kept']:.2f}")


def unprepared(a, make_server):
    """Adapters that are read from their files and prepared: CPU time without other work, and the
    longest gap of a stream of the base model with a load beside it and without."""
    config = config_of(a.model)
    cpu, longest = [], {"alone": [], "loads": []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(2):
            write_adapter(os.path.join(folder, f"x{i}"), config, 16, ALL, i)
        with make_server(a.binary, a.model, 1, "--snapshot", "off", "--max-num-seqs", "8",
                         "--kv-cache-memory", "256MiB", "--adapter-dir", folder,
                         role="role=admin") as server:
            for i in range(2):
                server.load_adapter("x", f"x{i}")  # from here on the files are in the page cache
            for i in range(a.rounds):
                before = server.cpu_seconds()
                server.load_adapter("x", f"x{i % 2}")
                cpu.append(1e3 * (server.cpu_seconds() - before))
            for _ in range(a.rounds):
                for kind, gaps in longest.items():
                    stream = server.start_stream(0, a.steps * 4)
                    if kind == "loads":
                        for i in range(2):
                            server.load_adapter("x", f"x{i}")
                    gaps.append(1e3 * max(stream()))
    ratios = [one / two for one, two in zip(longest["loads"], longest["alone"])]
    size = adapter_bytes(config, 16, ALL) / 1e6
    print(f"registering an adapter of {size:.0f} MB from its files: "
          f"CPU {statistics.median(cpu):.1f} ms (of {len(cpu)}: {min(cpu):.1f} to {max(cpu):.1f}; "
          f"goal 60); longest gap of a stream "
          f"{statistics.median(longest['loads']):.1f} ms, without loads "
          f"{statistics.median(longest['alone']):.1f} ms, ratio {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}; goal 1.1)")
