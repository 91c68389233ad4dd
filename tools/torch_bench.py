#!/usr/bin/env python3
"""Measures the same device with PyTorch and transformers, and prints one JSON line.

Usage: torch_bench.py ceilings|eager|compiled --device cuda:0 [--config FILE --batch B ...]
ceilings: bandwidth of a copy in device memory (bytes read and written) and of one from pinned
memory to the device, BF16 matmul.
eager, compiled: decode steps of transformers' Llama with random weights, unchanged or with a static
cache and torch.compile. Exits 3, with the reason on stderr, when a package is missing.
"""

import argparse
import json
import sys
import time


def best_seconds(torch, device, run, repeats):
    """The shortest of some runs, each between two waits for the device."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    run()
    best = float("inf")
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        run()
        wait()
        best = min(best, time.perf_counter() - start)
    return best


def ceilings(torch, arguments):
    source = torch.ones(arguments.copy_mib << 20, dtype=torch.uint8, device=arguments.device)
    target = torch.empty_like(source)
    copy = best_seconds(torch, arguments.device, lambda: target.copy_(source), 10)
    result = {"copy_bytes_per_second": 2 * source.numel() / copy}
    pinned = torch.ones(arguments.copy_mib << 18, dtype=torch.uint8)  # a quarter
    if arguments.device.startswith("cuda"):
        pinned = pinned.pin_memory()
    upload = best_seconds(torch, arguments.device,
                          lambda: target[:pinned.numel()].copy_(pinned, non_blocking=True), 5)
    result["upload_bytes_per_second"] = pinned.numel() / upload
    del source, target, pinned
    flops = 0.0
    for n in arguments.matmul:
        a = torch.randn(n, n, dtype=torch.bfloat16, device=arguments.device)
        b = torch.randn(n, n, dtype=torch.bfloat16, device=arguments.device)
        seconds = best_seconds(torch, arguments.device, lambda a=a, b=b: a @ b, 10)
        flops = max(flops, 2 * n**3 / seconds)
    result["matmul_flops_per_second"] = flops
    return result


def make_model(torch, transformers, arguments):
    config = transformers.AutoConfig.from_pretrained(arguments.config)
    config.eos_token_id = None  # every answer has its full length
    config.pad_token_id = 0
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(arguments.device):
        model = transformers.LlamaForCausalLM(config)
    return model.eval()


def decode(torch, transformers, arguments):
    """Seconds of a decode step: the difference of a long and a shortest answer, per token."""
    model = make_model(torch, transformers, arguments)
    prompt = torch.randint(0, model.config.vocab_size, (arguments.batch, arguments.input_len),
                           device=arguments.device)
    options = {"do_sample": False, "attention_mask": torch.ones_like(prompt)}
    if arguments.what == "compiled":
        # generate() compiles the decode of a static cache by itself on a GPU.
        options["cache_implementation"] = "static"

    def seconds(tokens):
        def run():
            with torch.no_grad():
                got = model.generate(prompt, max_new_tokens=tokens, **options)
            if got.shape[1] != prompt.shape[1] + tokens:
                raise RuntimeError(f"{got.shape[1] - prompt.shape[1]} tokens came, not {tokens}")
        return best_seconds(torch, arguments.device, run, 2)

    longest = seconds(1 + arguments.output_len)
    step = (longest - seconds(1)) / arguments.output_len
    return {"step_ms": step * 1000, "tokens_per_second": arguments.batch / step,
            "version": f"transformers {transformers.__version__}, torch {torch.__version__}"}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["ceilings", "eager", "compiled"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--config", help="a folder with config.json")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--copy-mib", type=int, default=4096)
    parser.add_argument("--matmul", type=int, nargs="+", default=[4096, 8192])
    arguments = parser.parse_args(argv)
    try:
        import torch  # pylint: disable=import-outside-toplevel
        if arguments.what != "ceilings":
            import transformers  # pylint: disable=import-outside-toplevel
    except (ImportError, OSError) as error:
        print(f"not installed for {sys.executable}: {error}", file=sys.stderr)
        return 3
    if arguments.what == "ceilings":
        result = ceilings(torch, arguments)
    else:
        result = decode(torch, transformers, arguments)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
