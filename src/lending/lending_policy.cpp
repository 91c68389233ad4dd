#include "lending/lending_policy.h"

#include <algorithm>

namespace sluice {

LendingWish LendingPolicy::decide(TimePoint now, const LendingLoad& load) {
  const double use =
      load.limit > 0 ? static_cast<double>(load.used) / static_cast<double>(load.limit) : 0;
  const bool short_of_memory = !load.slots_full && (load.waiting > 0 || use >= kHighUse);
  const bool calm = load.waiting == 0 && use < kLowUse;
  if (!calm) calm_since_.reset();
  if (calm && !calm_since_) calm_since_ = now;
  LendingWish wish;
  if (short_of_memory && load.limit < most_) {
    wish.want = std::min(most_ - load.limit, std::max(load.limit, kSmallestStep));
  } else if (calm && now - *calm_since_ >= kCalm) {
    wish.spare = std::max<std::int64_t>(load.limit - std::max(least_, 2 * load.used), 0);
  }
  return wish;
}

}  // namespace sluice
