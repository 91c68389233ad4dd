#include "lending/pressure_policy.h"

#include <algorithm>

namespace sluice {

bool PressurePolicy::is_short(TimePoint now, const PressureReading& reading) {
  bool stalls = false;
  if (reading.stalled && stalled_ && looked_ && now > *looked_) {
    const std::chrono::duration<double> stalled = *reading.stalled - *stalled_;
    const std::chrono::duration<double> passed = now - *looked_;
    stalls = stalled > kStalled * passed;
  }
  stalled_ = reading.stalled;
  looked_ = now;
  return stalls || reading.headroom < kLow;
}

void PressurePolicy::look(TimePoint now, const PressureReading& reading, std::int64_t backed) {
  if (is_short(now, reading)) {
    short_at_ = now;
    // As much as is lacking, but a part at a time: what is taken away moves down or is computed
    // again.
    const std::int64_t most = std::max(backed / 8, kStep);
    const std::int64_t step = std::clamp(kLow - reading.headroom, kStep, most);
    cap_ = std::max(least_, std::min(cap_.value_or(most_), backed) - step);
    return;
  }
  if (!cap_ || now - short_at_ < kCalm || reading.headroom < kHigh) return;
  const std::int64_t room = backed + reading.headroom - kHigh;
  cap_ = std::max(*cap_, std::min(*cap_ + std::max(*cap_ / 8, kStep), room));
  if (*cap_ >= most_) cap_.reset();
}

}  // namespace sluice
