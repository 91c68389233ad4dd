#!/usr/bin/env python3
"""Writes tests/golden/packed/NAME: a matrix as another program packs it, with the fields of
config.json that describe it, and its elements as that program reads them back.

    python3 tools/make_quantized_goldens.py [--only NAME...]

Needs tools/requirements-quantized.txt, and for the cases of their names the sources of autoawq and
gptqmodel (which ask for CUDA when they are installed): give their folders with --autoawq and
--gptqmodel. Elements of gptq and awq are computed in F32 (their own F16 would round them), those of
compressed-tensors in the BF16 of its scales.
"""

import argparse
import importlib
import json
import os
import sys
import types

import torch
from safetensors.torch import save_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUTPUT = os.path.join(ROOT, "tests", "golden", "packed")
ROWS = 32
COLUMNS = 256


def random_matrix(seed):
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed)) * 0.05


def find_scales(weight, group, bits, symmetric, dtype):
    """Scales and zero points (without a sign) [rows, groups] that cover each group."""
    grouped = weight.reshape(ROWS, -1, group or COLUMNS)
    most = 2**bits - 1
    if symmetric:
        scales = grouped.abs().amax(2) / (most / 2)
        return scales.to(dtype), torch.full(scales.shape, 2 ** (bits - 1), dtype=torch.int32)
    low = grouped.amin(2).clamp(max=0)
    scales = ((grouped.amax(2).clamp(min=0) - low) / most).to(dtype)
    return scales, (-low / scales.float()).round().clamp(0, most).to(torch.int32)


def save(name, config, tensors, expected):
    folder = os.path.join(OUTPUT, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"quantization_config": config}, file, indent=1)
        file.write("\n")
    named = {f"m.{part}": tensor.contiguous() for part, tensor in tensors.items()}
    assert expected.shape == (ROWS, COLUMNS)
    save_file({**named, "expected": expected.contiguous()},
              os.path.join(folder, "model.safetensors"))


def linear_of(weight):
    linear = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    linear.weight.data = weight
    return linear


def random_order(seed):
    return torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(seed))


def groups_in_order(order, group):
    """The group of each column, if groups are filled in that order."""
    groups = torch.empty(COLUMNS, dtype=torch.int32)
    groups[order] = torch.arange(COLUMNS, dtype=torch.int32) // (group or COLUMNS)
    return groups


def gptq_case(name, seed, group, bits, symmetric, version, order=torch.arange(COLUMNS)):
    module = importlib.import_module("gptqmodel.nn_modules.qlinear.torch")
    convert = importlib.import_module("gptqmodel.utils.model").convert_gptq_v2_to_v1_format_module
    weight = random_matrix(seed)
    scales, zeros = find_scales(weight[:, order], group, bits, symmetric, torch.float16)
    groups = groups_in_order(order, group)
    desc_act = not torch.equal(order, torch.arange(COLUMNS))
    packed = module.TorchLinear(bits=bits, group_size=group or -1, sym=symmetric, desc_act=desc_act,
                                in_features=COLUMNS, out_features=ROWS)
    packed.pack_original(linear_of(weight), scales.float(), zeros.float(), groups)
    stored_scales = packed.scales
    packed.scales = stored_scales.float()
    expected = packed.dequantize_weight().T.float()
    if version == 1:
        convert(packed, types.SimpleNamespace(bits=bits, pack_dtype=torch.int32))
    config = {"quant_method": "gptq", "bits": bits, "group_size": group or -1, "desc_act": desc_act,
              "sym": symmetric, "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
              "pack_dtype": "int32"}
    save(name, config, {"qweight": packed.qweight, "qzeros": packed.qzeros,
                        "scales": stored_scales, "g_idx": groups}, expected)


def awq_case(name, seed, group):
    gemm = importlib.import_module("awq.modules.linear.gemm")
    utils = importlib.import_module("awq.utils.packing_utils")
    weight = random_matrix(seed)
    scales, zeros = find_scales(weight, group, 4, False, torch.float16)
    # The module rounds the zero points' products in F16, so give it a matrix of exact elements.
    codes = (weight.reshape(ROWS, -1, group) / scales.float()[..., None] + zeros[..., None])
    codes = codes.round().clamp(0, 15)
    exact = ((codes - zeros[..., None]) * scales.float()[..., None]).reshape(ROWS, COLUMNS)
    packed = gemm.WQLinear_GEMM.from_linear(linear_of(exact), 4, group,
                                            scales=scales.T.contiguous().float(),
                                            zeros=zeros.T.contiguous().float())
    expected = utils.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4,
                                     group).T
    assert torch.equal(expected, exact)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
              "zero_point": True, "modules_to_not_convert": None}
    save(name, config, {"qweight": packed.qweight, "qzeros": packed.qzeros,
                        "scales": packed.scales}, expected)


def compressed_case(name, seed, group, bits, symmetric, form):
    quantization = importlib.import_module("compressed_tensors.quantization")
    compressors = importlib.import_module("compressed_tensors.compressors")
    weight = random_matrix(seed)
    scales, zeros = find_scales(weight, group, bits, symmetric, torch.bfloat16)
    arguments = quantization.QuantizationArgs(
        num_bits=bits, type="int", symmetric=symmetric,
        strategy="group" if group else "channel", group_size=group or None)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=arguments)
    compressor = compressors.BaseCompressor.get_value_from_registry(form)
    state = {"weight": weight.bfloat16(), "weight_scale": scales,
             "weight_zero_point": (zeros - 2 ** (bits - 1)).to(torch.int8)}
    stored = compressor.compress(state, scheme)
    expected = compressor.decompress(stored, scheme)["weight"]
    weights = json.loads(arguments.model_dump_json())
    config = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
              "quantization_status": "compressed", "kv_cache_scheme": None,
              "config_groups": {"group_0": {
                  "targets": ["Linear"], "input_activations": None, "output_activations": None,
                  "weights": weights}}}
    save(name, config, stored, expected)


CASES = {
    "gptq-v1-128": lambda name: gptq_case(name, 1, 128, 4, True, 1),
    "gptq-v1-32-zeros": lambda name: gptq_case(name, 2, 32, 4, False, 1),
    "gptq-v2-64-zeros": lambda name: gptq_case(name, 3, 64, 4, False, 2),
    "gptq-v2-rows": lambda name: gptq_case(name, 4, 0, 4, True, 2),
    "gptq-v1-128-8bit": lambda name: gptq_case(name, 5, 128, 8, True, 1),
    "gptq-v2-64-8bit": lambda name: gptq_case(name, 12, 64, 8, True, 2),
    "gptq-v1-128-order": lambda name: gptq_case(name, 14, 128, 4, True, 1, random_order(15)),
    "gptq-v2-32-order": lambda name: gptq_case(name, 16, 32, 4, False, 2, random_order(17)),
    "awq-128": lambda name: awq_case(name, 6, 128),
    "awq-64": lambda name: awq_case(name, 7, 64),
    "compressed-128": lambda name: compressed_case(name, 8, 128, 4, True, "pack-quantized"),
    "compressed-128-zeros": lambda name: compressed_case(name, 9, 128, 4, False, "pack-quantized"),
    "compressed-rows-8bit": lambda name: compressed_case(name, 10, 0, 8, True, "pack-quantized"),
    "compressed-128-8bit-zeros":
        lambda name: compressed_case(name, 13, 128, 8, False, "pack-quantized"),
    "compressed-rows-int8": lambda name: compressed_case(name, 11, 0, 8, True, "int-quantized"),
}


def use_sources(package, folder, parts):
    """Makes parts of a package importable without the package's own start, which imports all."""
    for part in [package] + [f"{package}.{part}" for part in parts]:
        module = types.ModuleType(part)
        module.__path__ = [os.path.join(folder, *part.split("."))]
        sys.modules[part] = module


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--autoawq", help="the folder of autoawq's sources")
    parser.add_argument("--gptqmodel", help="the folder of gptqmodel's sources")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    if options.autoawq:
        use_sources("awq", options.autoawq, ["modules", "modules.linear", "utils"])
    if options.gptqmodel:
        sys.path.insert(0, options.gptqmodel)
    for name in options.only:
        CASES[name](name)


if __name__ == "__main__":
    main()
