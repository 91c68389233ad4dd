// Reads quantization_config of config.json, in the two forms of published FP8 weights: quant_method
// "fp8" (transformers and vLLM) and "compressed-tensors" (llm-compressor). Activations stay in 16
// or 32 bits even if the file says otherwise (the engine's loader logs this). Every other kind of
// quantization is refused by name. Pure; any thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "model/json_fields.h"
#include "model/model_config.h"

namespace sluice {

// Nothing when the weights are not quantized.
Result<std::optional<Fp8Scaling>> read_quantization(const JsonFields& config);

}  // namespace sluice
