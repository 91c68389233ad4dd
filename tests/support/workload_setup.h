// The choices that a seed of the random workload (scheduler_workload.h) makes before anything runs:
// model, memory, tier, options of the scheduler, and rates of events. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/rng.h"
#include "kv/kv_manager.h"
#include "scheduler/scheduler.h"
#include "tests/support/fake_model.h"
#include "tests/support/scheduler_workload.h"

namespace sluice {

// In place of a policy's name: `stall-free` with guessed tokens.
constexpr std::string_view kGuessing = "guessing";

struct WorkloadSetup {
  FakeModel model;
  KvOptions kv;
  SchedulerOptions scheduler;
  int max_in_flight = 1;
  double early_commit_rate = 0;  // 0: steps always overlap
  double arrival_rate = 0;
  double cancel_rate = 0;
  double limit_rate = 0;   // of a new KV limit
  double refuse_rate = 0;  // of growth that is refused from now on, or granted again
  double pause_rate = 0;   // of a long time without arrivals
  double adapter_rate = 0;
  double load_rate = 0.3;           // of a load that ends in a turn
  double drop_rate = 0.02;          // of memory that loses its cached blocks
  bool others_memory_only = false;  // the blocks of the second tenant never go to the tier
  bool two_levels = false;          // the tier has a fast and a slow level
  std::int32_t max_prompt = 0;
  std::int32_t max_output = 0;
};

inline std::int32_t pick(SplitMix64& rng, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
}

inline bool chance(SplitMix64& rng, double probability) { return rng.uniform() < probability; }

// `rng`: the stream of the seed, which the workload goes on with.
WorkloadSetup choose_setup(SplitMix64& rng, std::string_view policy, std::uint64_t seed,
                           WorkloadKind kind);

}  // namespace sluice
