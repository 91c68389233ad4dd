#include "server/retry_after.h"

#include <algorithm>
#include <cmath>

namespace sluice {

void RetryAfter::finished(TimePoint now) {
  finished_[count_ % kHistory] = now;
  ++count_;
  refused_since_ = std::max(0, refused_since_ - 1);
}

int RetryAfter::refused(TimePoint now) {
  ++refused_since_;
  if (count_ < 2) return kMinSeconds;  // nothing known yet
  const std::size_t kept = std::min(count_, kHistory);
  const TimePoint oldest = finished_[(count_ - kept) % kHistory];
  const double seconds = std::max(1e-3, to_seconds(now - oldest));
  const double per_second = static_cast<double>(kept) / seconds;
  // Refusals beyond the longest wait do not count, so that a client that retries often does not
  // cause long waits for others.
  const double most = std::ceil(kMaxSeconds * per_second);
  refused_since_ = std::min(refused_since_, static_cast<int>(std::min(most, 1e9)));
  const double wait = std::ceil(static_cast<double>(refused_since_) / per_second);
  return static_cast<int>(std::clamp(wait, double{kMinSeconds}, double{kMaxSeconds}));
}

}  // namespace sluice
