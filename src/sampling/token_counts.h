// TokenCounts: the tokens of a sequence and how often it produced each, for penalties. A flat
// array over the vocabulary counts in O(1). A list of the tokens seen makes applying and clearing
// cost the length of the sequence, not of the vocabulary.
// Owner: one sampler slot. Threads: not synchronised. Allocates on the first reset() only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace sluice {

class TokenCounts {
 public:
  // Forgets everything, then counts a sequence's prompt and its output so far. Ids outside the
  // vocabulary are ignored. `max_tokens` is the length of the longest possible sequence.
  void reset(std::int32_t vocab_size, std::int32_t max_tokens, std::span<const TokenId> prompt,
             std::span<const TokenId> output);

  // Counts one more token of the output. REQUIRES: reset() was called.
  void add_output(TokenId token);

  // Distinct tokens of prompt and output, in the order of their first appearance.
  std::span<const TokenId> seen() const { return seen_; }
  std::int32_t output_count(TokenId token) const {
    return counts_[static_cast<std::size_t>(token)] - 1;
  }

 private:
  void note(TokenId token);

  std::vector<std::int32_t> counts_;  // [vocabulary]: 0 = not seen, else 1 + times produced
  std::vector<TokenId> seen_;
};

}  // namespace sluice
