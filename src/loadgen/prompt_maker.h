// PromptMaker: prompts of exact length that differ from each other, so that a prefix cache finds
// nothing, except for prefixes that a trace shares. A seed gives the same prompts on every machine.
// Owner: the run. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "workload/workload.h"

namespace sluice {

class PromptMaker {
 public:
  // Draws from `ids`; empty: only texts can be made.
  PromptMaker(std::vector<TokenId> ids, std::uint64_t seed);

  // The `number`-th request's prompt: request.prompt_tokens ids.
  void make_ids(const WorkloadRequest& request, std::int64_t number, std::vector<TokenId>& out);
  // The same number of English words, which is about the same number of tokens.
  void make_text(const WorkloadRequest& request, std::int64_t number, std::string& out);

 private:
  std::vector<TokenId> ids_;
  std::uint64_t seed_;
};

// Distinct common words, each after a blank: any model makes ordinary tokens of them.
std::string sample_text();

// Ids from the middle half of a vocabulary, where no known model has its special tokens.
std::vector<TokenId> middle_ids(std::int32_t vocab_size);

}  // namespace sluice
