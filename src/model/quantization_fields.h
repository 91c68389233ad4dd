// Reads quantization_config of config.json, in the forms that are published: quant_method "fp8"
// (transformers and vLLM), "gptq" and "awq" (4 and 8 bits, 4 bits), "auto-round" (the forms of
// "gptq" and "awq"), and "compressed-tensors" (llm-compressor: FP8, INT8 and packed integers).
// Every other kind of quantization is refused by name.
// Inputs of products stay in 16 or 32 bits even if the file says otherwise (the engine's loader
// logs this), except for INT8 matrices whose file asks for inputs in INT8. Pure; any thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "model/json_fields.h"
#include "model/model_config.h"

namespace sluice {

// One of the two, or none when the weights are not quantized.
struct Quantization {
  std::optional<CodeScaling> scaling;
  std::optional<WeightPacking> packing;
};
Result<Quantization> read_quantization(const JsonFields& config);

}  // namespace sluice
