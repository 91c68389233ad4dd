#include "request/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

namespace sluice {
namespace {

// `value` in [low, high], or an error that names the field and its range. NaN is outside.
Status in_range(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(
      fmt::format("{} must be between {} and {}, got {}", field, low, high, value));
}

Status valid_token(const char* field, TokenId id, std::int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return invalid_argument(
      fmt::format("{} names token {}, the vocabulary has 0 to {}", field, id, vocab_size - 1));
}

}  // namespace

Status validate(const SamplingParams& p, std::int32_t vocab_size) {
  if (p.max_tokens < 1) {
    return invalid_argument(fmt::format("max_tokens must be at least 1, got {}", p.max_tokens));
  }
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens) {
    return invalid_argument(fmt::format("min_tokens must be between 0 and max_tokens ({}), got {}",
                                        p.max_tokens, p.min_tokens));
  }
  RETURN_IF_ERROR(in_range("n", p.n, 1, 128));
  RETURN_IF_ERROR(in_range("temperature", p.temperature, 0, 100));
  if (!(p.top_p > 0 && p.top_p <= 1)) {
    return invalid_argument(fmt::format("top_p must be above 0 and at most 1, got {}", p.top_p));
  }
  if (p.top_k < -1) {
    return invalid_argument(
        fmt::format("top_k must be -1 or 0 (off) or positive, got {}", p.top_k));
  }
  RETURN_IF_ERROR(in_range("min_p", p.min_p, 0, 1));
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty))) {
    return invalid_argument(
        fmt::format("repetition_penalty must be above 0, got {}", p.repetition_penalty));
  }
  RETURN_IF_ERROR(in_range("presence_penalty", p.presence_penalty, -2, 2));
  RETURN_IF_ERROR(in_range("frequency_penalty", p.frequency_penalty, -2, 2));
  RETURN_IF_ERROR(in_range("logprobs", p.logprobs, -1, kMaxLogprobs));
  RETURN_IF_ERROR(in_range("prompt_logprobs", p.prompt_logprobs, -1, kMaxLogprobs));
  for (const auto& [id, bias] : p.logit_bias) {
    RETURN_IF_ERROR(valid_token("logit_bias", id, vocab_size));
    RETURN_IF_ERROR(in_range("logit_bias", bias, -100, 100));
  }
  for (const TokenId id : p.allowed_token_ids) {
    RETURN_IF_ERROR(valid_token("allowed_token_ids", id, vocab_size));
  }
  for (const std::vector<TokenId>& word : p.bad_words) {
    for (const TokenId id : word) RETURN_IF_ERROR(valid_token("bad_words", id, vocab_size));
  }
  for (const TokenId id : p.stop_token_ids) {
    RETURN_IF_ERROR(valid_token("stop_token_ids", id, vocab_size));
  }
  for (const std::string& stop : p.stop) {
    if (stop.empty()) return invalid_argument("stop must not contain an empty string");
  }
  return {};
}

}  // namespace sluice
