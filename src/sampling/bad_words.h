// BadWords: sequences of tokens that one sequence's output must not contain. The last token of a
// word is forbidden while the output ends with the tokens before it. The prompt does not count.
// Owner: a slot of the sampler. Threads: one at a time. assign() allocates; the rest does not.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace sluice {

class BadWords {
 public:
  // Takes the words of a request, whose sequence has produced `output` already. Empty words are
  // ignored.
  void assign(std::span<const std::vector<TokenId>> words, std::span<const TokenId> output);
  bool empty() const { return words_.empty(); }

  // Sets the logits of the tokens that would complete a word to minus infinity.
  // REQUIRES: `logits` has an entry for every id of the words.
  void forbid(std::span<float> logits) const;
  void add_output(TokenId token);

 private:
  std::vector<std::vector<TokenId>> words_;
  std::vector<TokenId> tail_;  // the last tokens of the output: at most longest word - 1
  std::size_t max_tail_ = 0;
};

}  // namespace sluice
