"""The tiny models of tests/golden/models: one config.json each, as a checkpoint of the family would
carry it (some as transformers 4 wrote them, some as transformers 5 does), and their dtypes."""


def _config(family, **fields):
    architecture = {
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
    }[family]
    base = {
        "architectures": [architecture],
        "model_type": family,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "use_cache": True,
    }
    base.update(fields)
    return base


def _sizes(vocab, hidden, ffn, layers, heads, kv_heads, head_dim=None):
    sizes = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }
    if head_dim:
        sizes["head_dim"] = head_dim
    return sizes


def _compressed_tensors(strategy):
    weights = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": None,
               "num_bits": 8, "observer": "minmax", "observer_kwargs": {}, "strategy": strategy,
               "symmetric": True, "type": "float"}
    inputs = {**weights, "dynamic": True, "observer": None, "strategy": "token"}
    return {"config_groups": {"group_0": {"input_activations": inputs, "output_activations": None,
                                          "targets": ["Linear"], "weights": weights}},
            "format": "float-quantized", "global_compression_ratio": None, "ignore": ["lm_head"],
            "kv_cache_scheme": None, "quant_method": "compressed-tensors",
            "quantization_status": "compressed"}


# name -> (config, dtype the weights are stored in)
CASES = {
    "llama-mha": (
        _config("llama", **_sizes(160, 64, 176, 3, 4, 4), rope_theta=10000.0, rope_scaling=None,
                tie_word_embeddings=False, attention_bias=False, mlp_bias=False, pretraining_tp=1,
                torch_dtype="bfloat16"),
        "bf16"),
    "llama-gqa-tied-f32": (
        _config("llama", **_sizes(192, 64, 128, 3, 8, 2), rope_theta=500000.0,
                tie_word_embeddings=True, torch_dtype="float32"),
        "f32"),
    "llama-mqa-odd-sizes": (
        _config("llama", **_sizes(131, 72, 92, 3, 6, 1, 20), rms_norm_eps=1e-6,
                rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="bfloat16"),
        "bf16"),
    "llama-rope-llama3": (
        _config("llama", **_sizes(160, 96, 192, 3, 6, 2), rope_theta=10000.0,
                rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 32, "rope_type": "llama3"},
                tie_word_embeddings=True, torch_dtype="bfloat16"),
        "bf16"),
    "llama-rope-linear": (
        _config("llama", **_sizes(160, 64, 160, 2, 4, 2), rope_theta=10000,
                rope_scaling={"type": "linear", "factor": 2.5}, tie_word_embeddings=False,
                torch_dtype="bfloat16"),
        "bf16"),
    "llama-rope-yarn-biases": (
        _config("llama", **_sizes(144, 64, 120, 3, 4, 2, 24), attention_bias=True, mlp_bias=True,
                rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                 "original_max_position_embeddings": 32},
                tie_word_embeddings=False, dtype="bfloat16"),
        "bf16"),
    "llama-gelu-f16": (
        _config("llama", **_sizes(160, 64, 144, 3, 8, 4, 16), hidden_act="gelu_pytorch_tanh",
                rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="float16"),
        "f16"),
    "mistral-window": (
        _config("mistral", **_sizes(160, 72, 136, 3, 4, 2, 24), sliding_window=16,
                rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="bfloat16"),
        "bf16"),
    "mistral-full-f16": (
        _config("mistral", **_sizes(150, 80, 168, 3, 10, 5), sliding_window=None,
                rope_theta=1000000.0, tie_word_embeddings=False, torch_dtype="float16"),
        "f16"),
    "qwen2-gqa7-tied": (
        _config("qwen2", **_sizes(176, 112, 152, 3, 14, 2), rms_norm_eps=1e-6,
                rope_theta=1000000.0, sliding_window=32768, use_sliding_window=False,
                max_window_layers=21, tie_word_embeddings=True, torch_dtype="bfloat16"),
        "bf16"),
    "qwen2-window": (
        _config("qwen2", **_sizes(152, 64, 112, 4, 4, 4), rms_norm_eps=1e-6, rope_theta=10000.0,
                sliding_window=20, use_sliding_window=True, max_window_layers=2,
                tie_word_embeddings=False, torch_dtype="bfloat16"),
        "bf16"),
    "qwen2-rope-yarn": (
        _config("qwen2", **_sizes(160, 64, 128, 3, 4, 1), rms_norm_eps=1e-6,
                rope_theta=1000000.0, sliding_window=131072, use_sliding_window=False,
                max_window_layers=28,
                rope_scaling={"type": "yarn", "factor": 4.0,
                              "original_max_position_embeddings": 32, "beta_fast": 16.0,
                              "beta_slow": 2.0},
                tie_word_embeddings=False, torch_dtype="float32"),
        "f32"),
    "qwen3-tied": (
        _config("qwen3", **_sizes(168, 64, 136, 3, 6, 2, 32), rms_norm_eps=1e-6,
                attention_bias=False, rope_theta=1000000, rope_scaling=None, sliding_window=None,
                use_sliding_window=False, max_window_layers=3, tie_word_embeddings=True,
                torch_dtype="bfloat16"),
        "bf16"),
    "qwen3-layer-types-biases": (
        _config("qwen3", **_sizes(160, 96, 144, 4, 4, 2, 16), rms_norm_eps=1e-6,
                attention_bias=True, layer_types=["full_attention", "sliding_attention"] * 2,
                sliding_window=12, use_sliding_window=True, max_window_layers=4,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                tie_word_embeddings=False, dtype="bfloat16"),
        "bf16"),
    # Checkpoints in FP8: layers' matrices as codes, all else in the dtype.
    "llama-fp8-block": (
        _config("llama", **_sizes(160, 192, 272, 2, 6, 2), rope_theta=10000.0,
                tie_word_embeddings=False, torch_dtype="bfloat16",
                quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic",
                                     "fmt": "e4m3", "weight_block_size": [128, 128]}),
        "bf16"),
    "qwen2-fp8-channel": (
        _config("qwen2", **_sizes(160, 80, 136, 2, 5, 1), rms_norm_eps=1e-6, rope_theta=10000.0,
                tie_word_embeddings=True, torch_dtype="float16",
                quantization_config=_compressed_tensors("channel")),
        "f16"),
    "qwen3-fp8-tensor": (
        _config("qwen3", **_sizes(160, 64, 144, 2, 4, 2, 24), rms_norm_eps=1e-6,
                rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="bfloat16",
                quantization_config=_compressed_tensors("tensor")),
        "bf16"),
}

# Rotary embeddings alone, at the sizes of real models: name -> (head_dim, max positions, fields).
ROPES = {
    "default-llama-2": (128, 4096, {"rope_theta": 10000.0}),
    "default-qwen2.5": (128, 32768, {"rope_theta": 1000000.0}),
    "default-odd-head": (80, 4096, {"rope_theta": 10000.0}),
    "linear-4": (128, 16384, {"rope_theta": 10000.0,
                              "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama-3.1": (128, 131072, {"rope_theta": 500000.0, "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}}),
    "llama-3.2-1b": (64, 131072, {"rope_theta": 500000.0, "rope_scaling": {
        "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}}),
    "yarn-qwen2.5": (128, 131072, {"rope_theta": 1000000.0, "rope_scaling": {
        "factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}}),
    "yarn-attention-factor": (64, 65536, {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 150000.0, "factor": 16.0, "attention_factor": 1.25,
        "original_max_position_embeddings": 4096, "beta_fast": 24.0, "beta_slow": 1.5}}),
    "yarn-mscale-no-truncate": (96, 65536, {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": 1.0,
        "mscale_all_dim": 0.707, "truncate": False, "original_max_position_embeddings": 4096}}),
    "yarn-original-from-top-level": (64, 8192, {
        "original_max_position_embeddings": 2048, "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
}
