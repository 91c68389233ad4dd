// The date, for answers and logs, which people compare with those of other machines. Nothing is
// measured or decided with it: that is clock.h's.
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

// Since 1970, UTC.
inline std::chrono::milliseconds unix_time() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      // tidy: allow(wall-clock) the one place
      std::chrono::system_clock::now().time_since_epoch());
}

inline std::int64_t unix_seconds() { return unix_time().count() / 1000; }

}  // namespace sluice
