// PressurePolicy: how much KV memory a server may have while the system is short of memory. The
// system is short when less than kLow is left of the machine or of a control group's limit, or when
// processes were stalled for memory for more than kStalled of the time since the last look.
// - While it is short, the cap falls by a part of the KV memory at each look, down to `least`,
//   which accepted requests may need.
// - Once it has not been short for kCalm and more than kHigh is left, the cap rises by parts, and
//   goes away at `most`. Between the two nothing changes, so that memory does not move to and fro.
// Growth itself stops before kLow is reached (KvMemory leaves 64 MiB), so a server alone never
// causes the pressure that it answers to.
// Owner: LendSession. Pure; one thread. Units: bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace sluice {

struct PressureReading {
  std::int64_t headroom = 0;        // left of the tightest limit; negative: above it
  std::optional<Duration> stalled;  // for memory, in all; absent: the system does not say
};

class PressurePolicy {
 public:
  static constexpr std::int64_t kLow = std::int64_t{32} << 20;
  static constexpr std::int64_t kHigh = std::int64_t{96} << 20;
  static constexpr std::int64_t kStep = std::int64_t{4} << 20;  // at least
  static constexpr double kStalled = 0.1;
  static constexpr Duration kCalm = std::chrono::seconds(2);

  PressurePolicy(std::int64_t least, std::int64_t most) : least_(least), most_(most) {}

  // Called every 100 ms or so. `backed`: the KV memory that is taken from the system.
  void look(TimePoint now, const PressureReading& reading, std::int64_t backed);

  // Absent: the system has memory.
  std::optional<std::int64_t> cap() const { return cap_; }

 private:
  bool is_short(TimePoint now, const PressureReading& reading);

  std::int64_t least_;
  std::int64_t most_;
  std::optional<std::int64_t> cap_;
  std::optional<TimePoint> looked_;
  std::optional<Duration> stalled_;
  TimePoint short_at_{};
};

}  // namespace sluice
