#include "model/generation_defaults.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "model/json_fields.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;
constexpr double kLarge = 1e6;

// Defaults that choose a decoding method Sluice does not have, with the values that mean "off".
struct IgnoredDefault {
  std::string_view name;
  double off;
};
constexpr std::array kIgnored = {
    IgnoredDefault{"num_beams", 1},
    IgnoredDefault{"num_beam_groups", 1},
    IgnoredDefault{"penalty_alpha", 0},
    IgnoredDefault{"typical_p", 1},
    IgnoredDefault{"epsilon_cutoff", 0},
    IgnoredDefault{"eta_cutoff", 0},
    IgnoredDefault{"no_repeat_ngram_size", 0},
    IgnoredDefault{"top_h", 0},
    IgnoredDefault{"guidance_scale", 1},
};

void warn_about_ignored(const JsonFields& fields) {
  for (const auto& [name, off] : kIgnored) {
    const nlohmann::json* value = fields.find(name);
    if (value == nullptr || (value->is_number() && value->get<double>() == off)) continue;
    log_warning(fmt::format("generation_config.json: {} is not supported and is ignored", name));
  }
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
  // transformers writes 0 for "no top-p", which as a probability would leave no token.
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
  auto text = read_file(directory + "/generation_config.json", kMaxBytes);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return GenerationDefaults();
    return text.error();
  }
  auto result = parse_generation_defaults(*text, vocab_size);
  if (!result) return with_context(directory, result.error());
  return result;
}

}  // namespace sluice
