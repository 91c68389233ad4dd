// config.json and generation_config.json. An accepted configuration is within the stated limits,
// has every shape that it implies, and gives finite rotary frequencies.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "model/families.h"
#include "model/generation_defaults.h"
#include "model/model_config.h"
#include "model/rope.h"

namespace {

using sluice::ModelLimits;

void check_layer(const sluice::LayerConfig& layer) {
  CHECK(layer.num_heads >= 1 && layer.num_heads <= ModelLimits::kHeads);
  CHECK(layer.num_kv_heads >= 1 && layer.num_heads % layer.num_kv_heads == 0);
  CHECK(layer.head_dim >= 2 && layer.head_dim <= ModelLimits::kHeadDim && layer.head_dim % 2 == 0);
  CHECK(layer.window >= 0 && layer.window <= ModelLimits::kPositions);
  CHECK(layer.intermediate_size >= 1 && layer.rope == 0);
}

void check_config(const sluice::ModelConfig& config) {
  CHECK(config.vocab_size >= 1 && config.vocab_size <= ModelLimits::kVocabSize);
  CHECK(config.hidden_size >= 1 && config.hidden_size <= ModelLimits::kHiddenSize);
  CHECK(config.layers.size() == static_cast<std::size_t>(config.num_layers));
  CHECK(config.norm_epsilon >= 0.0F && config.norm_epsilon <= 1.0F);
  for (const sluice::LayerConfig& layer : config.layers) check_layer(layer);
  for (const sluice::TokenId id : config.eos_tokens) CHECK(id >= 0 && id < config.vocab_size);
  for (std::size_t role = 0; role < sluice::kNumWeightRoles; ++role) {
    for (const std::int64_t dim :
         sluice::weight_shape(config, static_cast<sluice::WeightRole>(role), 0)) {
      CHECK(dim >= 1);
    }
  }
  CHECK(config.ropes.size() == 1);
  const sluice::RopeConfig& rope = config.ropes.front();
  CHECK(rope.rotary_dim == config.layers.front().head_dim);
  CHECK(std::isfinite(rope.attention_scaling));
  for (const float frequency : sluice::rope_inverse_frequencies(rope)) {
    CHECK(std::isfinite(frequency));
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  sluice::set_log_level(sluice::LogLevel::kError);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = sluice::parse_model_config(text);
  if (config) {
    check_config(*config);
  } else {
    CHECK(config.error().message.starts_with("config.json: "));
  }
  const auto defaults = sluice::parse_generation_defaults(text, 1000);
  if (!defaults) CHECK(defaults.error().message.starts_with("generation_config.json: "));
  return 0;
}
