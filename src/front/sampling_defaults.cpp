#include "front/sampling_defaults.h"

#include <algorithm>
#include <type_traits>

#include "base/check.h"

namespace sluice {
namespace {

template <class Fallback, class T>
void fill(bool given, const Fallback& fallback, T& value) {
  if (!given && fallback) value = static_cast<T>(*fallback);
}

}  // namespace

void apply_generation_defaults(const GivenSampling& given, const GenerationDefaults& defaults,
                               MissingMaxTokens missing, std::int32_t room,
                               SamplingParams& params) {
  fill(given.temperature, defaults.temperature, params.temperature);
  if (!given.temperature && defaults.do_sample == false) params.temperature = 0;
  fill(given.top_p, defaults.top_p, params.top_p);
  fill(given.top_k, defaults.top_k, params.top_k);
  fill(given.min_p, defaults.min_p, params.min_p);
  fill(given.repetition_penalty, defaults.repetition_penalty, params.repetition_penalty);
  if (given.max_tokens || missing == MissingMaxTokens::kKeep) return;
  if (missing == MissingMaxTokens::kModelOrContext) params.max_tokens = room;
  fill(/*given=*/false, defaults.max_new_tokens, params.max_tokens);
  // A default must not contradict a field that the request gives.
  params.max_tokens = std::max(params.max_tokens, params.min_tokens);
}

Status complete_sampling(const GivenSampling& given, const GenerationDefaults& defaults,
                         MissingMaxTokens missing, const EngineLimits& limits,
                         std::size_t prompt_tokens, SamplingParams& params) {
  CHECK(prompt_tokens > 0 && prompt_tokens < static_cast<std::size_t>(limits.max_model_len));
  const std::int32_t room = limits.max_model_len - static_cast<std::int32_t>(prompt_tokens);
  apply_generation_defaults(given, defaults, missing, room, params);
  RETURN_IF_ERROR(validate(params, limits.vocab_size));
  params.max_tokens = std::min(params.max_tokens, room);
  params.min_tokens = std::min(params.min_tokens, params.max_tokens);
  return {};
}

}  // namespace sluice
