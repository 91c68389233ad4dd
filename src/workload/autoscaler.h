// Autoscaler: which requests of a burst go to a machine that is started because of the burst. The
// baseline of Aqua's evaluation (https://arxiv.org/abs/2407.21255, section 9.1). Pure.
//
// The arrival rate is looked at every `check`, over the last window: as long as `check`, or as four
// requests at `rate` take if that is longer, because few requests say little. More than 1.5 times
// `rate` starts a machine, which is ready `start` later. From then on each request beyond `rate`,
// counted from the beginning of that window, goes to it: new requests only, until the burst's
// surplus has been redirected.
// Owner: a simulation. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace sluice {

struct AutoscaleOptions {
  double rate = 0;  // requests per second that one machine is meant for
  Duration check = std::chrono::seconds(5);
  Duration start = std::chrono::seconds(60);
};

// "RATE,CHECK,START": requests per second and two times in seconds. kInvalidArgument quotes the
// part that is wrong.
Result<AutoscaleOptions> parse_autoscale(std::string_view text);

class Autoscaler {
 public:
  explicit Autoscaler(const AutoscaleOptions& options);

  // Counts a request; whether it goes to the new machine. REQUIRES: arrivals are in order of time.
  bool redirect(Duration arrival);

  // When the new machine is ready; nothing while no burst has been seen.
  std::optional<Duration> ready_at() const { return ready_at_; }
  std::int64_t redirected() const { return redirected_; }

 private:
  void check(Duration now);

  AutoscaleOptions options_;
  Duration window_;
  Duration next_check_;
  std::deque<Duration> recent_;  // arrivals of the last window
  Duration burst_start_{0};
  std::optional<Duration> ready_at_;
  std::int64_t in_burst_ = 0;  // since burst_start_
  std::int64_t redirected_ = 0;
};

}  // namespace sluice
