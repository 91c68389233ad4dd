#include "scheduler/paging_costs.h"

namespace sluice {

// A clock that stands still says nothing about costs.
void PagingCosts::Rate::add(std::int64_t more_tokens, Duration took) {
  if (more_tokens <= 0 || took <= Duration(0)) return;
  ns += static_cast<double>(took.count());
  tokens += static_cast<double>(more_tokens);
  if (tokens >= 2 * kMemory) fade();
}

bool PagingCosts::choose_load() {
  const double load = load_ns_per_token();
  const double compute = chunk_ns_per_token();
  if (load == 0 || compute == 0 || load <= compute) {
    computed_in_row_ = 0;
    return true;
  }
  if (++computed_in_row_ < kRetry) return false;
  computed_in_row_ = 0;
  loads_.fade();
  return true;
}

}  // namespace sluice
