// ProcessTimes: how long a function process has taken to start, and for how long it has been silent
// although it has requests and does not wait for a turn. No clock: the caller looks at the time,
// about once a second. If it looks later than that, the machine was paused, and the process too:
// that time does not count.
// Owner: ProcessEngineLoop. Threads: one at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace sluice {

class ProcessTimes {
 public:
  static constexpr Duration kLongestLook = std::chrono::seconds(2);

  explicit ProcessTimes(TimePoint now) : looked_(now) {}

  // The time is `now`. `waited`: how long the process has waited for turns so far.
  void look(TimePoint now, bool has_requests, Duration waited) {
    const Duration passed = std::min(now - std::exchange(looked_, now), kLongestLook);
    const Duration has_waited = waited - std::exchange(waited_, waited);
    since_start_ += passed;
    silence_ = is_silent_ ? silence_ + std::max(passed - has_waited, Duration(0)) : Duration(0);
    is_silent_ = has_requests;
  }
  // The process has sent something.
  void heard() { is_silent_ = false; }

  // At the last look.
  Duration since_start() const { return since_start_; }
  Duration silence() const { return silence_; }

 private:
  TimePoint looked_;
  Duration waited_{0};
  Duration since_start_{0};
  Duration silence_{0};
  bool is_silent_ = false;  // since the last look
};

}  // namespace sluice
