#include "scheduler/paging_costs.h"

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

PagingChoice PagingCosts::choose(bool may_meet) {
  const double load = load_ns_per_token();
  const double compute = chunk_ns_per_token();
  if (may_meet && std::isinf(near_)) return PagingChoice::kMeet;
  const double near = may_meet ? near_ : 1;
  if (load == 0 || compute == 0 || load <= compute * near) {
    computed_in_row_ = 0;
    const bool all = load == 0 || compute == 0 || !may_meet || load * near <= compute;
    return all ? PagingChoice::kLoad : PagingChoice::kMeet;
  }
  if (++computed_in_row_ < kRetry) return PagingChoice::kCompute;
  computed_in_row_ = 0;
  // Few loads must not be forgotten, or the next sequence waits for all of its blocks.
  if (!may_meet || loads_.tokens >= 2 * kKnown) loads_.fade();
  return may_meet ? PagingChoice::kMeet : PagingChoice::kLoad;
}

}  // namespace sluice
