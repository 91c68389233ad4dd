// RetryAfter: what to tell a client that found the queue full: when it may find a place, judged by
// how fast requests have been finishing. Owner: the API service. Threads: the event loop's.
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
  // Each refused client waits behind those refused since the last place became free.
  int refused(TimePoint now);

 private:
  static constexpr std::size_t kHistory = 64;
  std::array<TimePoint, kHistory> finished_{};  // a ring
  std::size_t count_ = 0;                       // ever
  int refused_since_ = 0;
};

}  // namespace sluice
