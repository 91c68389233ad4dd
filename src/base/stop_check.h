// StopCheck: a function that long work calls to find out whether to continue. It returns OK, or the
// error that ends the work: kCancelled when the client has left, kDeadlineExceeded when the time is
// over. The work then returns this error unchanged and no result.
// The owner of the work passes it down:
//   const StopCheck stop = [&] { return gone ? Status(cancelled("...")) : Status(); };
//   worker.from_text(text, add, salt, stop);
// Threads: the check runs on the thread that does the work; flags that it reads are atomic.
// Cost: one call per about 20,000 characters or template steps, at most one per 10 ms of work; a
// check may read a clock. Work that may rest meanwhile (base/work_pace.h) calls it each
// millisecond.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace sluice {

// An empty check never stops the work.
using StopCheck = std::function<Status()>;

// Counts work and calls the check once per kUnitsPerCheck. One thread at a time.
class StopMeter {
 public:
  static constexpr std::size_t kUnitsPerCheck = 20'000;

  StopMeter() = default;
  // `check` may be null. It must outlive the meter.
  explicit StopMeter(const StopCheck* check)
      : check_(check != nullptr && *check ? check : nullptr) {}

  // Counts work. Returns the check's result once per kUnitsPerCheck, otherwise OK.
  Status spend(std::size_t units) {
    units_ += units;
    if (units_ < kUnitsPerCheck || check_ == nullptr) [[likely]]
      return {};
    units_ = 0;
    return (*check_)();
  }

 private:
  const StopCheck* check_ = nullptr;
  std::size_t units_ = 0;
};

}  // namespace sluice
