// Time for decisions and measurements. Code takes a Clock, so that tests and the simulator can
// control time. Monotonic nanoseconds since an arbitrary start; never wall-clock time.
// Threads: now() may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>

namespace sluice {

// Nanoseconds. Instants and durations have different types, so that units cannot be mixed up.
using Duration = std::chrono::nanoseconds;

struct TimePoint {
  Duration since_start{0};
  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
  friend constexpr TimePoint operator+(TimePoint t, Duration d) { return {t.since_start + d}; }
  friend constexpr Duration operator-(TimePoint a, TimePoint b) {
    return a.since_start - b.since_start;
  }
};

constexpr double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// Truncates to whole nanoseconds.
constexpr Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}
constexpr double to_milliseconds(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// The process's monotonic clock.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override {
    return {
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
  }
};

// Changes only through advance().
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return {Duration(now_.load(std::memory_order_relaxed))}; }
  void advance(Duration d) { now_.fetch_add(d.count(), std::memory_order_relaxed); }

 private:
  std::atomic<Duration::rep> now_{0};
};

}  // namespace sluice
