// LendingPolicy: when a server that shares memory asks for more, and when it offers what it has.
// - It wants memory while KV memory is short: at least kHighUse of its limit is used, or sequences
//   wait although a slot is free for them. It asks for as much as it has, kSmallestStep at least,
//   so a burst reaches any size in a few steps.
// - It offers memory when it has been calm for kCalm: no sequence waits and less than kLowUse of
//   its limit is used. It keeps twice its use.
// Between the two thresholds it does neither, so that memory does not move back and forth.
// Owner: LendingAgent. Pure; one thread. Units: bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace sluice {

// A server's KV memory and queue at one time.
struct LendingLoad {
  std::int64_t limit = 0;   // it may use at most so much
  std::int64_t used = 0;    // by sequences; cached blocks do not count
  std::int64_t backed = 0;  // taken from the system
  std::int32_t waiting = 0;
  bool slots_full = false;  // more memory would not admit another sequence
};

struct LendingWish {
  std::int64_t want = 0;
  std::int64_t spare = 0;
};

class LendingPolicy {
 public:
  static constexpr double kHighUse = 0.875;
  static constexpr double kLowUse = 0.5;
  static constexpr std::int64_t kSmallestStep = std::int64_t{16} << 20;
  static constexpr Duration kCalm = std::chrono::milliseconds(500);

  // `least`, `most`: of the limit.
  LendingPolicy(std::int64_t least, std::int64_t most) : least_(least), most_(most) {}

  LendingWish decide(TimePoint now, const LendingLoad& load);

 private:
  std::int64_t least_;
  std::int64_t most_;
  std::optional<TimePoint> calm_since_;
};

}  // namespace sluice
