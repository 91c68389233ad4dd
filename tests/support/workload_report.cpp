#include <algorithm>

#include "tests/support/scheduler_workload.h"

namespace sluice {

WorkloadReport& WorkloadReport::operator+=(const WorkloadReport& other) {
  steps += other.steps;
  finished += other.finished;
  refused += other.refused;
  cancelled += other.cancelled;
  failed += other.failed;
  preemptions += other.preemptions;
  displaced += other.displaced;
  copies += other.copies;
  output_tokens += other.output_tokens;
  cached_tokens += other.cached_tokens;
  empty_plans += other.empty_plans;
  guessed_rows += other.guessed_rows;
  forced_tokens += other.forced_tokens;
  piped_rows += other.piped_rows;
  growths += other.growths;
  shrinks += other.shrinks;
  refused_growths += other.refused_growths;
  idle_releases += other.idle_releases;
  moved_blocks += other.moved_blocks;
  transfers += other.transfers;
  late_transfers += other.late_transfers;
  failed_transfers += other.failed_transfers;
  saved_blocks += other.saved_blocks;
  loaded_blocks += other.loaded_blocks;
  failed_loads += other.failed_loads;
  computed_instead += other.computed_instead;
  tier_tokens += other.tier_tokens;
  level_changes += other.level_changes;
  fast_loads += other.fast_loads;
  slow_loads += other.slow_loads;
  met += other.met;
  met_tokens += other.met_tokens;
  no_memory += other.no_memory;
  no_adapter += other.no_adapter;
  most_pinned = std::max(most_pinned, other.most_pinned);
  ended_holds += other.ended_holds;
  pins += other.pins;
  unpins += other.unpins;
  pinned_plans += other.pinned_plans;
  most_protected = std::max(most_protected, other.most_protected);
  return *this;
}

}  // namespace sluice
