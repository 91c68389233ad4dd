// A seeded random life for scheduler and KV bookkeeping: arrivals with shared prefixes, several
// choices, clients, priorities, cancels, stop ids, failing rows, tiny memory that grows and
// shrinks, several steps in flight, one or several micro-batches. Every plan, every token and every
// end is compared with what must be; what a policy promises beyond that is checked for it.
// Violations abort through CHECK with the seed printed before (print_seed_on_abort).
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

// Runs at least `steps` steps of the workload that `seed` stands for, then lets all finish.
// `policy` is a name for make_policy, or "guessing": `stall-free` with guessed tokens.
WorkloadReport run_scheduler_workload(std::string_view policy, std::uint64_t seed,
                                      std::int64_t steps);

}  // namespace sluice
