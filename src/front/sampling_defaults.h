// Fills in the sampling parameters that a request leaves out: from the model's
// generation_config.json, and the number of tokens from the context. The command line and the
// server share these rules. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"
#include "model/generation_defaults.h"
#include "request/sampling_params.h"

namespace sluice {

// The fields that a request gave; the others take the model's defaults.
struct GivenSampling {
  bool temperature = false;
  bool top_p = false;
  bool top_k = false;
  bool min_p = false;
  bool repetition_penalty = false;
  bool max_tokens = false;
  bool seed = false;
};

// The token limit of a request that gives none.
enum class MissingMaxTokens : std::uint8_t {
  kKeep,           // what SamplingParams::max_tokens has
  kModelOrKeep,    // the model's max_new_tokens, else what SamplingParams::max_tokens has
  kModelOrContext  // the model's max_new_tokens, else all that the context leaves
};

// Fills in the model's defaults for fields that the request leaves out. `room`: the tokens that the
// context has left after the prompt, used by kModelOrContext only.
void apply_generation_defaults(const GivenSampling& given, const GenerationDefaults& defaults,
                               MissingMaxTokens missing, std::int32_t room, SamplingParams& params);

// For a server: the defaults, a check of all parameters (errors name the field), and max_tokens
// clamped to the room in the context, as the engine would do.
// REQUIRES: 0 < prompt_tokens < limits.max_model_len.
Status complete_sampling(const GivenSampling& given, const GenerationDefaults& defaults,
                         MissingMaxTokens missing, const EngineLimits& limits,
                         std::size_t prompt_tokens, SamplingParams& params);

}  // namespace sluice
