// Time for everything that decides or measures. Code takes a Clock, so tests and the simulator
// can own time. Monotonic nanoseconds since an arbitrary start; never wall-clock time.
// Threads: now() may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>

namespace sluice {

// Nanoseconds. A strong type for instants and std::chrono for durations keeps units honest.
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
// Cut to whole nanoseconds.
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

// Moves only when told to.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return {Duration(now_.load(std::memory_order_relaxed))}; }
  void advance(Duration d) { now_.fetch_add(d.count(), std::memory_order_relaxed); }

 private:
  std::atomic<Duration::rep> now_{0};
};

}  // namespace sluice
