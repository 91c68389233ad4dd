// Wall-clock time, for responses and logs that people compare across machines. Code that measures
// or decides uses clock.h instead.
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

// Since 1970, UTC.
inline std::chrono::milliseconds unix_time() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      // tidy: allow(wall-clock) the only use of the wall clock
      std::chrono::system_clock::now().time_since_epoch());
}

inline std::int64_t unix_seconds() { return unix_time().count() / 1000; }

}  // namespace sluice
