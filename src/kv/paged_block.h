// PagedBlock: a block on its way between memory and a tier below it (kv/tier_index.h). Plain data.
#pragma once

#include <cstdint>

#include "base/hash128.h"
#include "kv/block_pool.h"
#include "kv/tier_level.h"

namespace sluice {

// SaveHaste: how soon a save should end, and what it may cost others.
enum class SaveHaste : std::uint8_t {
  kEasy,     // steps run beside it, and must not be slowed down
  kIdle,     // no step runs beside it
  kAwaited,  // a client waits for the memory of the block
};

struct PagedBlock {
  BlockId block = kNullBlock;
  std::int32_t page = -1;  // -1: only held while others are loaded
  std::int32_t group = 0;
  Hash128 name;
  Hash128 tenant;           // whose key encrypts a saved block
  std::int32_t tokens = 0;  // of a partial block, which is a sequence's tail; 0: it is full
  std::int32_t depth = 0;   // of the last block that was used with it (tier_order.h)
  SaveHaste haste = SaveHaste::kEasy;  // of a save
  TierLevel level = TierLevel::kSlow;  // of a load
};

}  // namespace sluice
