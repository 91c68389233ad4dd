#include "scheduler/paging_costs.h"

#include <algorithm>
#include <cmath>

namespace sluice {

// A clock that stands still says nothing about costs.
void PagingRate::add(std::int64_t more_tokens, Duration took) {
  if (more_tokens <= 0 || took <= Duration(0)) return;
  ns += static_cast<double>(took.count());
  tokens += static_cast<double>(more_tokens);
  if (tokens >= 2 * PagingCosts::kMemory) fade();
}

double PagingRate::ns_per_token() const { return tokens < PagingCosts::kKnown ? 0 : ns / tokens; }

double PagingCosts::load_ns(const PagingWork& work) const {
  double longest = 0;
  for (std::size_t level = 0; level < kTierLevels; ++level) {
    if (work.loads[level] == 0) continue;
    const double ns = level_ns(work, level);
    if (ns == 0) return 0;
    longest = std::max(longest, ns);
  }
  return longest;
}

bool PagingCosts::loads_pay(const PagingWork& work) const {
  const double load = load_ns(work);
  const double compute = static_cast<double>(work.computes) * chunk_ns_per_token();
  return load == 0 || compute == 0 || load <= compute;
}

PagingChoice PagingCosts::choose(const PagingWork& work, bool may_meet) {
  const double load = load_ns(work);
  const double compute = static_cast<double>(work.computes) * chunk_ns_per_token();
  if (may_meet && std::isinf(near_)) return PagingChoice::kMeet;
  const double near = may_meet ? near_ : 1;
  if (load == 0 || compute == 0 || load <= compute * near) {
    for (std::size_t level = 0; level < kTierLevels; ++level) {
      if (work.loads[level] > 0) levels_[level].computed_in_row = 0;
    }
    const bool all = load == 0 || compute == 0 || !may_meet || load * near <= compute;
    return all ? PagingChoice::kLoad : PagingChoice::kMeet;
  }
  const bool fast = level_ns(work, static_cast<std::size_t>(TierLevel::kFast)) == load;
  Level& slowest = at(fast ? TierLevel::kFast : TierLevel::kSlow);
  if (++slowest.computed_in_row < kRetry) return PagingChoice::kCompute;
  slowest.computed_in_row = 0;
  // Few loads must not be forgotten, or the next sequence waits for all of its blocks.
  if (!may_meet || slowest.loads.tokens >= 2 * kKnown) slowest.loads.fade();
  return may_meet ? PagingChoice::kMeet : PagingChoice::kLoad;
}

}  // namespace sluice
