// The model that the fuzz target of sealed adapters decodes for, and that its seeds are of.
#pragma once

#include "base/check.h"
#include "model/model_config.h"

namespace sluice {

inline ModelConfig fuzz_model_config() {
  const auto config = parse_model_config(R"({"architectures":["LlamaForCausalLM"],
      "model_type":"llama","vocab_size":32,"hidden_size":8,"intermediate_size":8,
      "num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,
      "max_position_embeddings":64,"rms_norm_eps":1e-5,"hidden_act":"silu"})");
  CHECK(config.has_value());
  return *config;
}

}  // namespace sluice
