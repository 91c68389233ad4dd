// A random workload for scheduler and KvManager, drawn from a seed: arrivals with shared prefixes,
// several choices, clients, priorities, adapters, cancels, stop ids, forced tokens, failing rows, a
// tiny memory that grows, is refused, is limited and is returned when idle, a tier below that
// memory, which has one level or two, prefixes that are pinned and unpinned, late and failed
// transfers, one to three steps in flight, one or several micro-batches. Every plan, token and
// finish reason is compared with the expected one, and each policy's further promises are checked.
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
  std::int64_t displaced = 0;  // of these, for a higher priority
  std::int64_t copies = 0;
  std::int64_t output_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t empty_plans = 0;
  std::int64_t guessed_rows = 0;
  std::int64_t forced_tokens = 0;
  std::int64_t piped_rows = 0;  // with several micro-batches
  // Plans that asked for more KV memory, that returned some, and growth that was refused.
  std::int64_t growths = 0;
  std::int64_t shrinks = 0;
  std::int64_t refused_growths = 0;
  std::int64_t idle_releases = 0;  // of the shrinks, those without a limit
  std::int64_t moved_blocks = 0;   // by plans that returned or were about to return memory
  std::int64_t transfers = 0;
  std::int64_t late_transfers = 0;  // ended two turns or more after they began
  std::int64_t failed_transfers = 0;
  // With a tier below memory: blocks, and tokens that sequences found there.
  std::int64_t saved_blocks = 0;
  std::int64_t loaded_blocks = 0;
  std::int64_t failed_loads = 0;
  std::int64_t computed_instead = 0;
  std::int64_t tier_tokens = 0;
  // With a tier of two levels.
  std::int64_t level_changes = 0;
  std::int64_t fast_loads = 0;
  std::int64_t slow_loads = 0;
  std::int64_t met = 0;          // sequences whose prompt was loaded from the back
  std::int64_t met_tokens = 0;   // that they took over so
  std::int64_t no_memory = 0;    // sequences that ended for it
  std::int64_t no_adapter = 0;   // likewise
  std::int64_t most_pinned = 0;  // blocks held for warm prompts
  std::int64_t ended_holds = 0;  // times that short memory ended them
  std::int64_t pins = 0;
  std::int64_t unpins = 0;
  std::int64_t pinned_plans = 0;    // plans with pinned blocks in memory
  std::int64_t most_protected = 0;  // pages of the tier

  WorkloadReport& operator+=(const WorkloadReport& other);
};

// Runs at least `steps` steps of the workload of `seed`, then lets all sequences finish.
// `policy` is a name for make_policy, or "guessing": `stall-free` with guessed tokens.
// `kMeeting`: prompts that the tier has and memory has lost are frequent, and are always loaded
// from the back while their front is computed.
enum class WorkloadKind : std::uint8_t { kAny, kMeeting };
WorkloadReport run_scheduler_workload(std::string_view policy, std::uint64_t seed,
                                      std::int64_t steps, WorkloadKind kind = WorkloadKind::kAny);

}  // namespace sluice
