#include "model/generation_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "checkpoint/quote_text.h"
#include "model/json_fields.h"
#include "model/model_files.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;
constexpr double kLarge = 1e6;

// Fields that are read, or that do not affect the choice of tokens.
constexpr std::array<std::string_view, 29> kKnown = {
    "bos_token_id", "eos_token_id", "do_sample", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "max_new_tokens",
    // Only padded batches and models with an encoder use these.
    "pad_token_id", "decoder_start_token_id",
    // About the file.
    "transformers_version", "_from_model_config", "_commit_hash", "_name_or_path",
    "generation_kwargs",
    // Options of transformers' computation and of the result of its generate().
    "use_cache", "cache_implementation", "cache_config", "return_legacy_cache",
    "return_dict_in_generate", "output_scores", "output_logits", "output_attentions",
    "output_hidden_states", "low_memory", "remove_invalid_values", "compile_config",
    "disable_compile"};

// Fields for features that Sluice does not have, with the number that means "off".
struct NumberOff {
  std::string_view name;
  double off;
};
constexpr std::array kNumbersOff = {
    NumberOff{"num_beams", 1},
    NumberOff{"num_beam_groups", 1},
    NumberOff{"num_return_sequences", 1},
    NumberOff{"penalty_alpha", 0},
    NumberOff{"diversity_penalty", 0},
    NumberOff{"length_penalty", 1},
    NumberOff{"encoder_repetition_penalty", 1},
    NumberOff{"typical_p", 1},
    NumberOff{"epsilon_cutoff", 0},
    NumberOff{"eta_cutoff", 0},
    NumberOff{"no_repeat_ngram_size", 0},
    NumberOff{"encoder_no_repeat_ngram_size", 0},
    NumberOff{"top_h", 0},
    NumberOff{"guidance_scale", 1},
    NumberOff{"max_length", 20},  // transformers' default
    NumberOff{"min_length", 0},
    NumberOff{"min_new_tokens", 0},
};

bool is_off(std::string_view name, const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_array() || value.is_object()) return value.empty();
  if (!value.is_number()) return false;
  const auto* known = std::ranges::find(kNumbersOff, name, &NumberOff::name);
  return known != kNumbersOff.end() && value.get<double>() == known->off;
}

// One line for all fields that have no effect here.
void warn_about_ignored(const JsonFields& fields) {
  std::string names;
  for (const std::string& name : fields.names()) {
    const nlohmann::json* value = fields.find(name);
    if (value == nullptr || std::ranges::find(kKnown, name) != kKnown.end() ||
        is_off(name, *value)) {
      continue;
    }
    names += (names.empty() ? "" : ", ") + quote_text(name);
  }
  if (names.empty()) return;
  log_warning(fmt::format(
      "generation_config.json: these fields are not supported and have no effect: {}", names));
}

template <class T>
std::optional<std::int32_t> narrow(const std::optional<T>& value) {
  return value ? std::optional(static_cast<std::int32_t>(*value)) : std::nullopt;
}

}  // namespace

Result<GenerationDefaults> parse_generation_defaults(std::string_view text,
                                                     std::int32_t vocab_size) {
  ASSIGN_OR_RETURN(const nlohmann::json json, parse_json_object(text, "generation_config.json"));
  const JsonFields fields(json, "generation_config.json: ");
  constexpr auto kMaxInt = std::numeric_limits<std::int32_t>::max();
  GenerationDefaults result;
  ASSIGN_OR_RETURN(const auto bos, fields.token_ids("bos_token_id", vocab_size));
  if (!bos.empty()) result.bos_token = bos.front();
  ASSIGN_OR_RETURN(result.eos_tokens, fields.token_ids("eos_token_id", vocab_size));
  if (fields.has("do_sample")) {
    ASSIGN_OR_RETURN(result.do_sample, fields.boolean("do_sample", false));
  }
  ASSIGN_OR_RETURN(result.temperature, fields.number("temperature", 0, kLarge));
  ASSIGN_OR_RETURN(result.top_p, fields.number("top_p", 0, 1));
  // transformers writes 0 for "no top-p"; as a probability it would leave no token.
  if (result.top_p && *result.top_p == 0) result.top_p.reset();
  ASSIGN_OR_RETURN(const auto top_k, fields.integer("top_k", -1, kMaxInt));
  result.top_k = narrow(top_k);
  if (result.top_k && *result.top_k < 0) result.top_k = 0;
  ASSIGN_OR_RETURN(result.min_p, fields.number("min_p", 0, 1));
  ASSIGN_OR_RETURN(result.repetition_penalty, fields.number("repetition_penalty", 1e-6, kLarge));
  ASSIGN_OR_RETURN(const auto max_new, fields.integer("max_new_tokens", 1, kMaxInt));
  result.max_new_tokens = narrow(max_new);
  warn_about_ignored(fields);
  return result;
}

Result<GenerationDefaults> load_generation_defaults(const std::string& directory,
                                                    std::int32_t vocab_size) {
  auto text = read_model_text(directory, "generation_config.json", kMaxBytes);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return GenerationDefaults();
    return text.error();
  }
  auto result = parse_generation_defaults(*text, vocab_size);
  if (!result) return with_context(directory, result.error());
  return result;
}

}  // namespace sluice
