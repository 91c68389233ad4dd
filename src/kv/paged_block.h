// PagedBlock: a block on its way between memory and a tier below it (kv/tier_index.h). Plain data.
#pragma once

#include <cstdint>

#include "base/hash128.h"
#include "kv/block_pool.h"

namespace sluice {

struct PagedBlock {
  BlockId block = kNullBlock;
  std::int32_t page = -1;  // -1: only held while others are loaded
  std::int32_t group = 0;
  Hash128 name;
  Hash128 tenant;           // whose key encrypts a saved block
  std::int32_t tokens = 0;  // of a partial block, which is a sequence's tail; 0: it is full
  std::int32_t depth = 0;   // of the last block that was used with it (tier_order.h)
  bool urgent = false;      // of a save: a client waits for it, or no step runs beside it
};

}  // namespace sluice
