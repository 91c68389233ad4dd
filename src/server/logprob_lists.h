// Lists of log-probabilities for answers: tokens and scores of the engine, turned into text one
// token at a time, while the JSON is written.
// Pure functions; any thread. The tokenizer must outlive the lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/engine_loop.h"
#include "server/response_json.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// How the entries of a choice are to be read.
struct LogprobShape {
  std::size_t per_token = 0;  // entries: the chosen one, then the top ones
  bool first_has_none = false;
};

// `shape.per_token` of `entries` for each of `offsets`. REQUIRES: both outlive the list.
LogprobList make_logprob_list(const Tokenizer& tokenizer, LogprobShape shape,
                              std::span<const TokenLogprob> entries,
                              std::span<const std::int64_t> offsets);

// The same with the data, so that it outlives the choice.
LogprobList owning_logprob_list(const Tokenizer& tokenizer, LogprobShape shape,
                                std::vector<TokenLogprob> entries,
                                std::vector<std::int64_t> offsets);

// The first `shown` of `per_score` scores for each of `tokens` tokens but the first. The list has
// the scores.
PromptLogprobList make_prompt_logprob_list(const Tokenizer& tokenizer,
                                           std::vector<PromptLogprob> scores, std::size_t per_score,
                                           std::size_t shown, std::size_t tokens);

}  // namespace sluice
