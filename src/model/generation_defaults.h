// Sampling defaults of a model, from generation_config.json, for fields that a request leaves out.
// If the file is absent, all fields are empty. Fields without effect here (such as beams) are
// ignored, because they are defaults and not requests; one warning in the log names them all.
// Values: plain; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

struct GenerationDefaults {
  std::optional<TokenId> bos_token;
  std::vector<TokenId> eos_tokens;  // empty: use ModelConfig's
  // False: greedy unless the request gives a temperature.
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int32_t> top_k;  // 0 = off
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int32_t> max_new_tokens;
};

// `vocab_size`: token ids are checked against it.
Result<GenerationDefaults> load_generation_defaults(const std::string& directory,
                                                    std::int32_t vocab_size);

// The parser alone. Errors name fields as "generation_config.json: field".
Result<GenerationDefaults> parse_generation_defaults(std::string_view json,
                                                     std::int32_t vocab_size);

}  // namespace sluice
