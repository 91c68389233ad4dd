// KeepingTier: a tier that drops blocks to make room for others (KvTier::take_lost()), and that can
// be told to keep some of them.
// Threads: KvTier's.
#pragma once

#include <cstdint>

#include "offload/kv_tier.h"

namespace sluice {

class KeepingTier : public KvTier {
 public:
  // The block of `page`, or the one whose save is under way, makes no room for others until
  // release(). A save fails if only kept blocks could make room for it.
  virtual void keep(std::int32_t page) = 0;
  virtual void release(std::int32_t page) = 0;
};

}  // namespace sluice
