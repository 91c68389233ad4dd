// BlockOwner: what a tier below memory needs to know about the request that computed a KV block.
// Plain data.
#pragma once

#include "base/hash128.h"

namespace sluice {

struct BlockOwner {
  Hash128 tenant;            // whose key encrypts the block; zeros: the operator's
  bool memory_only = false;  // the block is never saved to a tier
};

}  // namespace sluice
