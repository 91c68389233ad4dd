// WorkPace: makes long work small beside others that compute. The work is cut into pieces of about
// a millisecond and rests after each, so that it takes a core only a small part of the time:
//
//   WorkPace pace({}, cpu_clock, [&] { return engine_runs; }, [&](Duration d) { ... });
//   load(file, pace.check());  // a StopCheck, which load() calls between two parts of its work
//
// While no other thread computes, the work runs without a rest.
// Pause: the rests of one owner's work, which the owner can end.
// Owner: of a WorkPace, the code that does the work. Threads: of a WorkPace the one that does the
// work; a Pause from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_check.h"

namespace sluice {

// The CPU time of the thread that asks.
class ThreadCpuClock final : public Clock {
 public:
  TimePoint now() const override;
};

class Pause {
 public:
  // Waits so long. False, at once: stop() was called.
  bool wait(Duration time);
  // Ends all waits, now and later. A second call does nothing.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool stopped_ = false;
};

class WorkPace {
 public:
  struct Options {
    Duration piece = std::chrono::milliseconds(1);  // of work between two rests, at least
    std::int32_t rests = 20;  // a rest takes so many times the time of the work before it
  };
  // Whether others compute, so that the work must rest.
  using Beside = std::function<bool()>;
  // Lets so much time pass. False: the work must end.
  using Wait = std::function<bool(Duration)>;

  // `worked`: the time that the work has taken so far; its first piece begins now. REQUIRES: it
  // outlives this.
  WorkPace(const Options& options, const Clock& worked, Beside beside, Wait wait);

  // Rests if a piece is done. kCancelled: the work must end.
  Status rest();
  // rest() as a check. REQUIRES: this outlives it.
  StopCheck check() {
    return [this] { return rest(); };
  }

 private:
  const Options options_;
  const Clock& worked_;
  const Beside beside_;
  const Wait wait_;
  TimePoint piece_;  // its begin
};

}  // namespace sluice
