// The rules of precedence are those of transformers 5: rope_scaling before rope_parameters, the
// dictionary's rope_theta before the top-level one, rope_type before type, and for the original
// context the top-level field before the dictionary's.
#include "model/rope_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

// Any other field of a rope dictionary is refused, because it belongs to a variant (mrope_section,
// long_factor, ...) that changes the mathematics.
constexpr std::array<std::string_view, 16> kKnownFields = {
    "rope_type", "type",           "rope_theta",       "factor",
    "truncate",  "beta_fast",      "low_freq_factor",  "original_max_position_embeddings",
    "beta_slow", "mscale",         "high_freq_factor", "partial_rotary_factor",
    "finetuned", "mscale_all_dim", "attention_factor", "max_position_embeddings"};

Status check_known(const JsonFields& fields) {
  for (const std::string& name : fields.names()) {
    if (!fields.has(name)) continue;
    if (name == "full_attention" || name == "sliding_attention") {
      return fields.refusal(quote_text(name),
                            "one rotary embedding per layer type is not "
                            "supported; expected the fields themselves");
    }
    if (name == "attn_factor") {
      log_warning(
          "config.json: attn_factor of the rotary embedding is ignored, as transformers "
          "does; attention_factor would be used");
      continue;
    }
    if (std::find(kKnownFields.begin(), kKnownFields.end(), name) == kKnownFields.end()) {
      return fields.refusal(quote_text(name), "is unknown and may change the result");
    }
  }
  return {};
}

Result<RopeType> read_type(const JsonFields& fields) {
  const char* name = fields.has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const auto type, fields.string(name));
  if (!type || *type == "default") return RopeType::kDefault;
  if (*type == "linear") return RopeType::kLinear;
  if (*type == "llama3") return RopeType::kLlama3;
  if (*type == "yarn") return RopeType::kYarn;
  return fields.refusal(name, fmt::format("{} is not supported; expected default, linear, llama3 "
                                          "or yarn",
                                          quote_text(*type)));
}

Status read_original_positions(const JsonFields& config, const JsonFields& fields,
                               std::int32_t max_positions, RopeConfig& rope) {
  constexpr const char* kName = "original_max_position_embeddings";
  const JsonFields& source = config.has(kName) ? config : fields;
  ASSIGN_OR_RETURN(const auto value, source.integer(kName, 1, ModelLimits::kPositions));
  rope.original_max_positions = value ? static_cast<std::int32_t>(*value) : max_positions;
  return {};
}

Status read_llama3(const JsonFields& fields, RopeConfig& rope) {
  ASSIGN_OR_RETURN(rope.low_freq_factor, fields.required_number("low_freq_factor", 1e-6, 1e6));
  ASSIGN_OR_RETURN(rope.high_freq_factor, fields.required_number("high_freq_factor", 1e-6, 1e6));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return fields.error("high_freq_factor",
                        fmt::format("{}; expected more than low_freq_factor {}",
                                    rope.high_freq_factor, rope.low_freq_factor));
  }
  return {};
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

Status read_yarn(const JsonFields& fields, RopeConfig& rope) {
  // 0 means "not given" here, as in transformers.
  ASSIGN_OR_RETURN(const auto fast, fields.number("beta_fast", 0, 1e6));
  ASSIGN_OR_RETURN(const auto slow, fields.number("beta_slow", 0, 1e6));
  rope.beta_fast = fast.value_or(0) != 0 ? *fast : 32.0;
  rope.beta_slow = slow.value_or(0) != 0 ? *slow : 1.0;
  if (rope.beta_fast < rope.beta_slow) {
    return fields.error("beta_fast", fmt::format("{}; expected at least beta_slow {}",
                                                 rope.beta_fast, rope.beta_slow));
  }
  ASSIGN_OR_RETURN(rope.truncate, fields.boolean("truncate", true));
  ASSIGN_OR_RETURN(const auto attention, fields.number("attention_factor", 0, 1e6));
  ASSIGN_OR_RETURN(const auto mscale, fields.number("mscale", 0, 1e6));
  ASSIGN_OR_RETURN(const auto all_dim, fields.number("mscale_all_dim", 0, 1e6));
  if (attention) {
    rope.attention_scaling = *attention;
  } else if (mscale.value_or(0) != 0 && all_dim.value_or(0) != 0) {
    rope.attention_scaling = yarn_mscale(rope.factor, *mscale) / yarn_mscale(rope.factor, *all_dim);
  } else {
    rope.attention_scaling = yarn_mscale(rope.factor, 1.0);
  }
  return {};
}

Status read_scaling(const JsonFields& config, const JsonFields& fields, std::int32_t max_positions,
                    RopeConfig& rope) {
  if (rope.type == RopeType::kDefault) return {};
  ASSIGN_OR_RETURN(rope.factor, fields.required_number("factor", 1.0, kMaxFactor));
  if (rope.type == RopeType::kLinear) return {};
  RETURN_IF_ERROR(read_original_positions(config, fields, max_positions, rope));
  return rope.type == RopeType::kLlama3 ? read_llama3(fields, rope) : read_yarn(fields, rope);
}

Status check_full_rotation(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto part, fields.number("partial_rotary_factor", 0, 1));
  if (part && *part != 1.0) {
    return fields.refusal("partial_rotary_factor",
                          fmt::format("{} is not supported by this family; expected 1", *part));
  }
  return {};
}

}  // namespace

Result<RopeConfig> read_rope(const JsonFields& config, std::int32_t head_dim,
                             std::int32_t max_position_embeddings) {
  if (head_dim % 2 != 0) {
    return config.error("head_dim", fmt::format("{}; expected an even number, as halves of a head "
                                                "are rotated",
                                                head_dim));
  }
  const auto is_filled = [&](const char* name) {
    const nlohmann::json* value = config.find(name);
    return value != nullptr && !(value->is_object() && value->empty());
  };
  const std::string name = is_filled("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const nlohmann::json empty = nlohmann::json::object();
  const nlohmann::json* dictionary = config.find(name);
  if (dictionary == nullptr) dictionary = &empty;
  if (!dictionary->is_object()) return config.error(name, "expected an object or null");
  const JsonFields fields(*dictionary, fmt::format("config.json: {}.", name));

  RopeConfig rope;
  rope.rotary_dim = head_dim;
  ASSIGN_OR_RETURN(rope.type, read_type(fields));
  RETURN_IF_ERROR(check_known(fields));
  RETURN_IF_ERROR(check_full_rotation(fields));
  RETURN_IF_ERROR(check_full_rotation(config));
  const JsonFields& theta_source = fields.has("rope_theta") ? fields : config;
  // Above 1, because its logarithm is a divisor.
  ASSIGN_OR_RETURN(const auto theta, theta_source.number("rope_theta", 1.0 + 1e-6, kMaxTheta));
  rope.theta = theta.value_or(10000.0);
  RETURN_IF_ERROR(read_scaling(config, fields, max_position_embeddings, rope));
  return rope;
}

}  // namespace sluice
