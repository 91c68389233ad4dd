// InstanceScaler: how many instances a function should have, from zero and back, by the rules and
// under the names of Knative's autoscaler (KPA), so that its documentation applies. One object a
// function. Where the gateway differs, it is because each request passes through it: it plays
// Knative's activator, so only the grace period's time counts and there is nothing to probe.
//
// Concurrency is recorded once a second or more often. Its averages over a stable and a panic
// window give two desired counts. When the panic window asks for `panic_threshold` times what is
// ready, the scaler panics: it follows the larger count and never scales down until one stable
// window after the last time it was over the threshold.
//
// While no instance is ready, requests wait in a bounded queue (may_wait); beyond that they are
// refused.
//
// Owner: the gateway or the simulator. One thread. The time must not fall. Allocation: at
// construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace sluice {

struct ScalerOptions {
  double target = 8;  // concurrent requests that one instance should have
  Duration stable_window = std::chrono::seconds(60);
  double panic_window_percentage = 10;  // of the stable window; one second at least
  double panic_threshold = 2;           // Knative's 200 %
  double max_scale_up_rate = 1000;
  double max_scale_down_rate = 2;
  Duration scale_down_delay{0};
  std::int32_t activation_scale = 1;
  std::int32_t min_scale = 0;
  std::int32_t max_scale = 0;              // 0: no limit
  Duration scale_to_zero_grace_period{0};  // Knative: 30 s, to change routes; there are none here
  Duration scale_to_zero_pod_retention_period{0};
  std::int32_t queue_depth = 100;  // requests that wait while no instance is ready
};

// Options with which the last instance ends after `idle` without a request, to a second or two.
ScalerOptions scaler_options_for(Duration idle);

// The mean of values over a window of whole seconds. Seconds without a value count as 0, but those
// before the first value do not count. Values are kept in whole millionths, as Knative rounds them,
// so that the sum of an empty window is exactly 0. The time must not fall.
class SecondsWindow {
 public:
  // REQUIRES: at least one second.
  explicit SecondsWindow(Duration length);
  // Several values of one second count as their mean.
  void record(TimePoint now, double value);
  double mean(TimePoint now);

 private:
  struct Second {
    std::int64_t sum = 0;  // millionths
    std::int64_t count = 0;
    std::int64_t mean() const { return count == 0 ? 0 : sum / count; }
  };
  // Moves the window's end to the second of `now`, and forgets what leaves the window.
  void advance(TimePoint now);
  std::int64_t length() const { return static_cast<std::int64_t>(seconds_.size()); }

  std::vector<Second> seconds_;  // by number of the second since the start of the clock
  std::int64_t total_ = 0;       // of the means
  std::int64_t end_ = -1;        // the window's last second; -1: none yet
  std::int64_t first_ = -1;      // with a value, since the last empty window
  std::int64_t last_ = -1;
};

struct ScaleDecision {
  std::int32_t instances = 0;
  bool panicking = false;
};

class InstanceScaler {
 public:
  // `ready`: instances that are there already.
  InstanceScaler(const ScalerOptions& options, TimePoint start, std::int32_t ready);

  // Requests that run or wait now.
  void record(TimePoint now, double concurrency);
  // Knative asks every two seconds, and when a request finds no instance.
  ScaleDecision decide(TimePoint now, std::int32_t ready);
  // Whether one more request may wait for an instance beside `waiting` others.
  bool may_wait(std::int32_t waiting) const { return waiting < options_.queue_depth; }
  const ScalerOptions& options() const { return options_; }

 private:
  std::int32_t desired(double concurrency, std::int32_t ready) const;
  void update_panic(TimePoint now, double panic_ratio);
  std::int32_t delayed(TimePoint now, std::int32_t instances);
  std::int32_t to_zero(TimePoint now, std::int32_t instances, std::int32_t ready);

  ScalerOptions options_;
  SecondsWindow stable_;
  SecondsWindow panic_;
  std::optional<TimePoint> panic_since_;  // the last time over the threshold
  std::int32_t max_panic_instances_ = 0;
  std::optional<TimePoint> active_since_;    // since there was an instance
  std::optional<TimePoint> inactive_since_;  // since zero has been asked for
  struct Delayed {
    TimePoint time;
    std::int32_t instances = 0;
  };
  std::vector<Delayed> delayed_;  // of the last scale_down_delay, falling
};

}  // namespace sluice
