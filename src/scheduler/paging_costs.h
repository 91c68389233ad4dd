// PagingCosts: whether blocks that only a tier below has are loaded, computed again, or both from
// either end (back_loads.h), by what both took lately. Each side keeps the sums of time and tokens,
// which halve after every kMemory tokens, so that long moves count more than short ones and old
// ones fade.
//
// Until both sides are known, loads win. Where neither is kNear times as fast as the other, both
// share the blocks: together they take at most 4/5 of the time of the faster one. While computing
// wins, every kRetry-th choice loads nevertheless, and the old loads count half from then on, so
// that a tier that has become faster is noticed.
// Owner: BlockPager. Threads: the engine's. Pure.
#pragma once

#include <cstdint>

#include "base/clock.h"

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

class PagingCosts {
 public:
  static constexpr double kNear = 4;

  // `near`: instead of kNear; infinite: blocks that may be shared always are, also before anything
  // is known.
  explicit PagingCosts(double near = kNear) : near_(near) {}

  static constexpr std::int64_t kMemory = 4096;
  static constexpr std::int64_t kKnown = 64;  // tokens
  static constexpr std::int32_t kRetry = 16;

  // The loads of one sequence: the time until the plan that saw the last end, without the step that
  // ran beside them.
  void note_load(std::int64_t tokens, Duration took) { loads_.add(tokens, took); }
  // A step that had chunks of prompts and no decode.
  void note_chunks(std::int64_t tokens, Duration took) { chunks_.add(tokens, took); }

  // Chooses for the next blocks. `may_meet`: whether they may be shared; if not, the faster side
  // has them all.
  PagingChoice choose(bool may_meet);

  double load_ns_per_token() const { return loads_.ns_per_token(); }  // 0: unknown
  double chunk_ns_per_token() const { return chunks_.ns_per_token(); }

 private:
  double near_;
  PagingRate loads_;
  PagingRate chunks_;
  std::int32_t computed_in_row_ = 0;  // choices
};

}  // namespace sluice
