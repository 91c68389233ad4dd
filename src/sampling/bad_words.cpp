#include "sampling/bad_words.h"

#include <algorithm>
#include <limits>

namespace sluice {

void BadWords::assign(std::span<const std::vector<TokenId>> words,
                      std::span<const TokenId> output) {
  words_.clear();
  tail_.clear();
  max_tail_ = 0;
  for (const std::vector<TokenId>& word : words) {
    if (word.empty()) continue;
    words_.push_back(word);
    max_tail_ = std::max(max_tail_, word.size() - 1);
  }
  tail_.reserve(max_tail_);
  for (const TokenId token : output.last(std::min(output.size(), max_tail_))) {
    tail_.push_back(token);
  }
}

void BadWords::forbid(std::span<float> logits) const {
  for (const std::vector<TokenId>& word : words_) {
    const std::size_t before = word.size() - 1;
    if (before > tail_.size()) continue;
    if (!std::equal(word.begin(), word.end() - 1,
                    tail_.end() - static_cast<std::ptrdiff_t>(before))) {
      continue;
    }
    logits[static_cast<std::size_t>(word.back())] = -std::numeric_limits<float>::infinity();
  }
}

void BadWords::add_output(TokenId token) {
  if (max_tail_ == 0) return;
  if (tail_.size() == max_tail_) tail_.erase(tail_.begin());
  tail_.push_back(token);
}

}  // namespace sluice
