// Reads quantization_config out of config.json, of the two forms FP8 weights are published in:
// quant_method "fp8" (transformers, and vLLM's own) and "compressed-tensors" (llm-compressor). What
// is said about activations is not followed (whoever loads the weights says so in the log): they
// stay in 16 or 32 bits. All else that is not FP8 weights is refused by name. Pure; any thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "model/json_fields.h"
#include "model/model_config.h"

namespace sluice {

// Nothing when the weights are not quantized.
Result<std::optional<Fp8Scaling>> read_quantization(const JsonFields& config);

}  // namespace sluice
