// A random workload for scheduler and KvManager, drawn from a seed: arrivals with shared prefixes,
// several choices, clients, priorities, cancels, stop ids, failing rows, a tiny memory that grows
// and shrinks, several steps in flight, one or several micro-batches. Every plan, token and finish
// reason is compared with the expected one, and each policy's further promises are checked.
// A violation aborts through CHECK; the seed is printed before (print_seed_on_abort).
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

struct WorkloadReport {
  std::int64_t steps = 0;  // plans with rows
  std::int64_t finished = 0;
  std::int64_t refused = 0;
  std::int64_t cancelled = 0;
  std::int64_t failed = 0;
  std::int64_t preemptions = 0;
  std::int64_t copies = 0;
  std::int64_t output_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t empty_plans = 0;
  std::int64_t guessed_rows = 0;
  std::int64_t piped_rows = 0;  // with several micro-batches

  WorkloadReport& operator+=(const WorkloadReport& other);
};

// Runs at least `steps` steps of the workload of `seed`, then lets all sequences finish.
// `policy` is a name for make_policy, or "guessing": `stall-free` with guessed tokens.
WorkloadReport run_scheduler_workload(std::string_view policy, std::uint64_t seed,
                                      std::int64_t steps);

}  // namespace sluice
