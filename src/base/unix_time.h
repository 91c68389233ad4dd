// Wall-clock time, for responses and logs that people compare across machines. Code that measures
// or decides uses clock.h instead.
// Threads: any.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace sluice {

// Since 1970, UTC.
inline std::chrono::milliseconds unix_time() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      // tidy: allow(wall-clock) the only use of the wall clock
      std::chrono::system_clock::now().time_since_epoch());
}

inline std::int64_t unix_seconds() { return unix_time().count() / 1000; }

// `seconds` since 1970 as text: a format of strftime, whose text has at most 63 characters.
inline std::string utc_text(std::int64_t seconds, const char* format) {
  const std::time_t time = seconds;
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &utc)};
}

}  // namespace sluice
