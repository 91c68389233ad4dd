// TierShares: divides the hits and the saved seconds of two tiers behind one (TierLevels) between
// them, by the blocks that each loaded for these hits. Sums since the start.
// Owner: ServerMetrics, under its rules. Pure.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace sluice {

class TierShares {
 public:
  struct Share {
    double hit_tokens = 0;
    double saved_seconds = 0;
  };

  // All are sums since the start. Hits are counted after their loads.
  void note(const TierLevels& levels, std::int64_t hit_tokens, double saved_seconds) {
    const auto tokens = static_cast<double>(hit_tokens);
    const std::int64_t fast = levels.fast.loaded_blocks - divided_.fast.loaded_blocks;
    const std::int64_t slow = levels.slow.loaded_blocks - divided_.slow.loaded_blocks;
    if (tokens > all_.hit_tokens && fast + slow > 0) {
      ratio_ = static_cast<double>(fast) / static_cast<double>(fast + slow);
      divided_ = levels;
    }
    add(fast_, ratio_, tokens, saved_seconds);
    add(slow_, 1 - ratio_, tokens, saved_seconds);
    all_ = {tokens, saved_seconds};
  }
  const Share& fast() const { return fast_; }
  const Share& slow() const { return slow_; }

 private:
  void add(Share& share, double ratio, double tokens, double seconds) const {
    share.hit_tokens += ratio * (tokens - all_.hit_tokens);
    share.saved_seconds += ratio * (seconds - all_.saved_seconds);
  }

  TierLevels divided_;  // blocks that earlier hits have used
  double ratio_ = 0;    // of the last hits: the fast tier's part
  Share all_;
  Share fast_;
  Share slow_;
};

}  // namespace sluice
