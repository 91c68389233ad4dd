#include "model/refused_fields.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace sluice {
namespace {

// The value at which a field does not change the mathematics; null and absence never do.
enum class Neutral : std::uint8_t { kNothing, kFalse, kZero, kOne, kZeroOrOne };

struct RefusedField {
  std::string_view name;
  Neutral neutral;
  std::string_view advice;
};

constexpr std::string_view kQuantized =
    "pre-quantized weights are not supported; expected a checkpoint in F32, F16 or BF16";
constexpr std::string_view kOldCompression =
    "is of old versions of compressed-tensors; expected quantization_config, as newer ones write";
constexpr std::string_view kExperts = "mixtures of experts are not supported";
constexpr std::string_view kMultimodal = "only text models are supported";
constexpr std::string_view kScaled = "this factor is not supported; expected 1";
constexpr std::string_view kCapped = "soft-capped logits are not supported";
constexpr std::string_view kAttention = "this attention variant is not supported";
constexpr std::string_view kPerLayer = "layers of different shapes are not supported";

constexpr std::array kRefused = {
    RefusedField{"quantization", Neutral::kNothing, kQuantized},
    RefusedField{"compression_config", Neutral::kNothing, kOldCompression},
    RefusedField{"num_experts", Neutral::kZeroOrOne, kExperts},
    RefusedField{"num_local_experts", Neutral::kZeroOrOne, kExperts},
    RefusedField{"n_routed_experts", Neutral::kZeroOrOne, kExperts},
    RefusedField{"moe_intermediate_size", Neutral::kZero, kExperts},
    RefusedField{"is_encoder_decoder", Neutral::kFalse, "expected a decoder-only model"},
    RefusedField{"add_cross_attention", Neutral::kFalse, "expected a decoder-only model"},
    RefusedField{"vision_config", Neutral::kNothing, kMultimodal},
    RefusedField{"audio_config", Neutral::kNothing, kMultimodal},
    RefusedField{"text_config", Neutral::kNothing, kMultimodal},
    RefusedField{"attn_logit_softcapping", Neutral::kZero, kCapped},
    RefusedField{"final_logit_softcapping", Neutral::kZero, kCapped},
    RefusedField{"embedding_multiplier", Neutral::kOne, kScaled},
    RefusedField{"residual_multiplier", Neutral::kOne, kScaled},
    RefusedField{"attention_multiplier", Neutral::kNothing, kAttention},
    RefusedField{"query_pre_attn_scalar", Neutral::kNothing, kAttention},
    RefusedField{"logits_scaling", Neutral::kOne, kScaled},
    RefusedField{"logit_scale", Neutral::kOne, kScaled},
    RefusedField{"scale_emb", Neutral::kOne, kScaled},
    RefusedField{"alibi", Neutral::kFalse, kAttention},
    RefusedField{"attention_chunk_size", Neutral::kNothing, kAttention},
    RefusedField{"attention_sinks", Neutral::kFalse, kAttention},
    RefusedField{"clip_qkv", Neutral::kNothing, kAttention},
    RefusedField{"q_lora_rank", Neutral::kNothing, kAttention},
    RefusedField{"kv_lora_rank", Neutral::kNothing, kAttention},
    RefusedField{"no_rope_layers", Neutral::kNothing, "layers without rotation are not supported"},
    RefusedField{"no_rope_layer_interval", Neutral::kZero,
                 "layers without rotation are not supported"},
    RefusedField{"rope_interleaved", Neutral::kFalse, "only halves of a head can be rotated"},
    RefusedField{"rope_traditional", Neutral::kFalse, "only halves of a head can be rotated"},
    RefusedField{"use_mrope", Neutral::kFalse, "multimodal rotary positions are not supported"},
    RefusedField{"parallel_attn", Neutral::kFalse, "parallel attention is not supported"},
    RefusedField{"use_parallel_residual", Neutral::kFalse, "parallel attention is not supported"},
    RefusedField{"per_layer_config", Neutral::kNothing, kPerLayer},
    RefusedField{"block_configs", Neutral::kNothing, kPerLayer},
};

bool is_neutral(const nlohmann::json& value, Neutral neutral) {
  // A JSON number may be written 1 or 1.0; both compare equal here.
  switch (neutral) {
    case Neutral::kNothing: return false;
    case Neutral::kFalse: return value.is_boolean() && !value.get<bool>();
    case Neutral::kZero: return value.is_number() && value.get<double>() == 0.0;
    case Neutral::kOne: return value.is_number() && value.get<double>() == 1.0;
    case Neutral::kZeroOrOne:
      return value.is_number() && (value.get<double>() == 0.0 || value.get<double>() == 1.0);
  }
  return false;
}

}  // namespace

Status refuse_unsupported_fields(const JsonFields& config) {
  for (const RefusedField& refused : kRefused) {
    const nlohmann::json* value = config.find(refused.name);
    if (value != nullptr && !is_neutral(*value, refused.neutral)) {
      return config.refusal(refused.name, refused.advice);
    }
  }
  return {};
}

}  // namespace sluice
