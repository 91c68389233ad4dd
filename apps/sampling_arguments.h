// Sampling parameters on the command line. Parameters that are not given come from the model's
// generation_config.json, else from SamplingParams. Owner: a command. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/generation_defaults.h"
#include "request/sampling_params.h"

namespace sluice {

// As given; absent = not given.
struct SamplingArguments {
  std::optional<std::string> max_tokens;
  std::optional<std::string> min_tokens;
  std::optional<std::string> n;
  std::optional<std::string> seed;
  std::optional<std::string> top_k;
  std::optional<std::string> logprobs;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::string> logit_bias;  // "id=bias"
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;
};

// Parses the arguments alone. Checks the ranges that need no model.
Result<SamplingParams> parse_sampling(const SamplingArguments& arguments);

// Fills in the model's defaults for arguments that are not given.
void apply_defaults(const SamplingArguments& arguments, const GenerationDefaults& defaults,
                    SamplingParams& params);

}  // namespace sluice
