// BlockNames: the names under which the blocks of one sequence are found. Full blocks come first.
// The block behind them may have a name too although it is partial: the tail of a sequence that was
// displaced. A view; the owner of the names outlives it. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash128.h"

namespace sluice {

struct BlockNames {
  std::span<const Hash128> full;
  Hash128 tail;
  // The tokens up to the end of the tail, which begins at a border of blocks; 0: there is no tail.
  std::int32_t tail_end = 0;

  BlockNames() = default;
  // NOLINTBEGIN(google-explicit-constructor): most sequences have full blocks only
  BlockNames(std::span<const Hash128> names) : full(names) {}
  BlockNames(const std::vector<Hash128>& names) : full(names) {}
  // NOLINTEND(google-explicit-constructor)
  BlockNames(std::span<const Hash128> names, Hash128 tail_name, std::int32_t end)
      : full(names), tail(tail_name), tail_end(end) {}

  bool empty() const { return full.empty() && tail_end == 0; }
  // The name of block `b` among those that hold the first `tokens` tokens. Only the tail is
  // partial.
  Hash128 name(std::int32_t b, std::int32_t tokens, std::int32_t block_size) const {
    return (b + 1) * block_size <= tokens ? full[static_cast<std::size_t>(b)] : tail;
  }
};

}  // namespace sluice
