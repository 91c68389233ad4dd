#include "base/work_pace.h"

#include <ctime>
#include <utility>

#include "base/check.h"

namespace sluice {

TimePoint ThreadCpuClock::now() const {
  timespec time{};
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return {std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)};
}

bool Pause::wait(Duration time) {
  std::unique_lock lock(mutex_);
  return !news_.wait_for(lock, time, [this] { return stopped_; });
}

void Pause::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  news_.notify_all();
}

WorkPace::WorkPace(const Options& options, const Clock& worked, Beside beside, Wait wait)
    : options_(options),
      worked_(worked),
      beside_(std::move(beside)),
      wait_(std::move(wait)),
      piece_(worked.now()) {}

Status WorkPace::rest() {
  const Duration worked = worked_.now() - piece_;
  if (worked < options_.piece) return {};
  const Duration rest = beside_() ? worked * options_.rests : Duration{0};
  if (!wait_(rest)) return Error{ErrorCode::kCancelled, "the work was stopped"};
  piece_ = worked_.now();
  return {};
}

}  // namespace sluice
