// TickingClock: a clock on which each reading takes the same time. So a loop that reads it once
// after each of its parts finds that each part took so long. Threads: the test's.
#pragma once

#include "base/clock.h"

namespace sluice::test {

class TickingClock final : public Clock {
 public:
  explicit TickingClock(Duration tick) : tick_(tick) {}
  TimePoint now() const override {
    now_ = now_ + tick_;
    return now_;
  }
  // Without a tick.
  TimePoint time() const { return now_; }
  void run_step(Duration length) { now_ = now_ + length; }

 private:
  Duration tick_;
  mutable TimePoint now_;
};

}  // namespace sluice::test
