// PagingCosts: whether blocks that only a tier below has are loaded, computed again, or both from
// either end (back_loads.h), by what both took lately. Each side keeps the sums of time and tokens,
// which halve after every kMemory tokens, so that long moves count more than short ones and old
// ones fade. Each level of the tier has sums of its own. Levels load beside each other, so a load
// takes as long as the slowest of its levels.
//
// Until both sides are known, loads win. Where neither is kNear times as fast as the other, both
// share the blocks: together they take at most 4/5 of the time of the faster one. While computing
// wins, every kRetry-th choice loads nevertheless, and the old loads of the level that decided
// count half from then on, so that a level that has become faster is noticed.
// Owner: BlockPager. Threads: the engine's. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "kv/tier_level.h"

namespace sluice {

enum class PagingChoice : std::uint8_t { kLoad, kMeet, kCompute };

// The time of a token, by sums that fade.
struct PagingRate {
  double ns = 0;
  double tokens = 0;

  void add(std::int64_t more_tokens, Duration took);
  void fade() {
    ns /= 2;
    tokens /= 2;
  }
  double ns_per_token() const;  // 0: unknown
};

// The tokens that a choice is about: those whose blocks would be loaded, by level, and those that
// would be computed instead.
struct PagingWork {
  std::array<std::int64_t, kTierLevels> loads{};
  std::int64_t computes = 0;
};

class PagingCosts {
 public:
  static constexpr double kNear = 4;

  // `near`: instead of kNear; infinite: blocks that may be shared always are, also before anything
  // is known.
  explicit PagingCosts(double near = kNear) : near_(near) {}

  static constexpr std::int64_t kMemory = 4096;
  static constexpr std::int64_t kKnown = 64;  // tokens
  static constexpr std::int32_t kRetry = 16;

  // The loads of one sequence from a level: the time until the plan that saw the last of them end,
  // without the step that ran beside them.
  void note_load(TierLevel level, std::int64_t tokens, Duration took) {
    at(level).loads.add(tokens, took);
  }
  // A step that had chunks of prompts and no decode.
  void note_chunks(std::int64_t tokens, Duration took) { chunks_.add(tokens, took); }

  // Chooses for the next blocks. `may_meet`: whether they may be shared; if not, the faster side
  // has them all.
  PagingChoice choose(const PagingWork& work, bool may_meet);
  // Whether loading does not take longer, as far as is known.
  bool loads_pay(const PagingWork& work) const;

  double load_ns(const PagingWork& work) const;  // 0: unknown
  double chunk_ns_per_token() const { return chunks_.ns_per_token(); }

 private:
  struct Level {
    PagingRate loads;
    std::int32_t computed_in_row = 0;  // choices that it decided
  };

  Level& at(TierLevel level) { return levels_[static_cast<std::size_t>(level)]; }
  double level_ns(const PagingWork& work, std::size_t level) const {
    return static_cast<double>(work.loads[level]) * levels_[level].loads.ns_per_token();
  }

  double near_;
  std::array<Level, kTierLevels> levels_;
  PagingRate chunks_;
};

}  // namespace sluice
