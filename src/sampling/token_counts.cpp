#include "sampling/token_counts.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

void TokenCounts::reset(std::int32_t vocab_size, std::int32_t max_tokens,
                        std::span<const TokenId> prompt, std::span<const TokenId> output) {
  if (counts_.empty()) {
    counts_.resize(static_cast<std::size_t>(vocab_size), 0);
    seen_.reserve(static_cast<std::size_t>(std::min(vocab_size, max_tokens)));
  }
  for (const TokenId token : seen_) counts_[static_cast<std::size_t>(token)] = 0;
  seen_.clear();
  for (const TokenId token : prompt) note(token);
  for (const TokenId token : output) add_output(token);
}

void TokenCounts::add_output(TokenId token) {
  CHECK(!counts_.empty());
  note(token);
  if (static_cast<std::size_t>(token) < counts_.size()) ++counts_[static_cast<std::size_t>(token)];
}

void TokenCounts::note(TokenId token) {
  // A negative id becomes a huge index and is ignored as well.
  if (static_cast<std::size_t>(token) >= counts_.size()) return;
  if (counts_[static_cast<std::size_t>(token)] != 0) return;
  counts_[static_cast<std::size_t>(token)] = 1;
  seen_.push_back(token);
}

}  // namespace sluice
