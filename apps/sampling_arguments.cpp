#include "apps/sampling_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "apps/option_values.h"
#include "front/sampling_defaults.h"

namespace sluice {
namespace {

constexpr std::int32_t kDefaultMaxTokens = 256;
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

// Does not change `value` if the option was not given. Clamps a number beyond 32 bits to the
// largest.
Status read_count(const char* option, const std::optional<std::string>& text, std::int64_t low,
                  std::int32_t& value) {
  if (!text) return {};
  ASSIGN_OR_RETURN(const std::int64_t parsed, parse_integer(option, *text, low, kInt64Max));
  value = static_cast<std::int32_t>(std::min(parsed, kInt32Max));
  return {};
}

Result<std::pair<TokenId, float>> parse_bias(const std::string& text) {
  const Error error = invalid_argument(
      fmt::format("--logit-bias must be ID=BIAS with a bias between -100 and 100, got '{}'", text));
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return error;
  const auto id = parse_integer("--logit-bias", text.substr(0, equals), 0, kInt32Max);
  float bias = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data() + equals + 1, end, bias);
  if (!id || problem != std::errc() || stop != end) return error;
  return std::pair<TokenId, float>(static_cast<TokenId>(*id), bias);
}

template <class T>
void set_if_given(const std::optional<T>& given, T& value) {
  if (given) value = *given;
}

}  // namespace

Result<SamplingParams> parse_sampling(const SamplingArguments& a) {
  SamplingParams p;
  p.max_tokens = kDefaultMaxTokens;
  RETURN_IF_ERROR(read_count("--max-tokens", a.max_tokens, 1, p.max_tokens));
  RETURN_IF_ERROR(read_count("--min-tokens", a.min_tokens, 0, p.min_tokens));
  RETURN_IF_ERROR(read_count("--n", a.n, 1, p.n));
  RETURN_IF_ERROR(read_count("--top-k", a.top_k, -1, p.top_k));
  RETURN_IF_ERROR(read_count("--logprobs", a.logprobs, 0, p.logprobs));
  if (a.seed) {
    ASSIGN_OR_RETURN(const std::int64_t seed, parse_integer("--seed", *a.seed, 0, kInt64Max));
    p.seed = static_cast<std::uint64_t>(seed);
  }
  set_if_given(a.temperature, p.temperature);
  set_if_given(a.top_p, p.top_p);
  set_if_given(a.min_p, p.min_p);
  set_if_given(a.repetition_penalty, p.repetition_penalty);
  set_if_given(a.presence_penalty, p.presence_penalty);
  set_if_given(a.frequency_penalty, p.frequency_penalty);
  for (const std::string& text : a.logit_bias) {
    ASSIGN_OR_RETURN(const auto bias, parse_bias(text));
    p.logit_bias.push_back(bias);
  }
  p.stop = a.stop;
  p.stop_token_ids = a.stop_token_ids;
  p.ignore_eos = a.ignore_eos;
  p.include_stop_str_in_output = a.include_stop;
  // Token ids are checked again once the vocabulary is known.
  RETURN_IF_ERROR(validate(p, std::numeric_limits<std::int32_t>::max()));
  return p;
}

void apply_defaults(const SamplingArguments& a, const GenerationDefaults& defaults,
                    SamplingParams& p) {
  const GivenSampling given{.temperature = a.temperature.has_value(),
                            .top_p = a.top_p.has_value(),
                            .top_k = a.top_k.has_value(),
                            .min_p = a.min_p.has_value(),
                            .repetition_penalty = a.repetition_penalty.has_value(),
                            .max_tokens = a.max_tokens.has_value(),
                            .seed = a.seed.has_value()};
  apply_generation_defaults(given, defaults, MissingMaxTokens::kModelOrKeep, /*room=*/0, p);
}

}  // namespace sluice
