// RetryAfter: estimates when a client that found the queue full should retry, from the rate at
// which requests finish.
// Owner: the API service. Threads: the event loop's.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace sluice {

class RetryAfter {
 public:
  static constexpr int kMinSeconds = 1;
  static constexpr int kMaxSeconds = 60;

  void finished(TimePoint now);
  // Each refused client waits after those refused since the last place became free.
  int refused(TimePoint now);

 private:
  static constexpr std::size_t kHistory = 64;
  std::array<TimePoint, kHistory> finished_{};  // a ring
  std::size_t count_ = 0;                       // ever
  int refused_since_ = 0;
};

}  // namespace sluice
