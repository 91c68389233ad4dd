// StopCheck: long work asks it, from inside the work, whether to go on. It returns OK, or the error
// with which the work ends: kCancelled when the client has left, kDeadlineExceeded when the time is
// over. Work that ends this way returns the check's error unchanged and no result.
// Usage, by the owner of the work:
//   const StopCheck stop = [&]() -> Status { if (gone.load()) return cancelled("..."); return {};
//   }; worker.from_text(text, add, salt, stop);
// Threads: the check runs on the thread that does the work. A flag that it reads is an atomic.
// Cost: the work asks about once per 20,000 characters or template steps, at most every 10 ms of
// work; a check may read a clock.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace sluice {

// Empty: the work is never stopped.
using StopCheck = std::function<Status()>;

// Counts work and asks the check once per kUnitsPerCheck. One thread at a time.
class StopMeter {
 public:
  static constexpr std::size_t kUnitsPerCheck = 20'000;

  StopMeter() = default;
  // `check` may be null. It must outlive the meter.
  explicit StopMeter(const StopCheck* check)
      : check_(check != nullptr && *check ? check : nullptr) {}

  // Counts work; now and then the check's answer.
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
