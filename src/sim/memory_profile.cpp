#include "sim/memory_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {
namespace {

constexpr double kLeastGain = 0.05;  // of a doubled batch's throughput

// A machine's replica whose displaced sequences lose nothing, whatever the link: the need is that
// of the load, not of a device below.
SimulationOptions taking_turns(const SimulatedMachine& machine, const Workload& workload) {
  SimulationOptions options = machine.options;
  ReplicaOptions& replica = options.replica;
  replica.scheduler = "fair";
  if (replica.tier_pages == 0) {
    std::int64_t blocks = 0;
    for (const WorkloadRequest& request : workload.requests) {
      blocks += (request.prompt_tokens + request.output_tokens) / replica.block_size + 1;
    }
    constexpr std::int64_t kMostPages = std::numeric_limits<std::int32_t>::max() / 2;
    replica.tier_pages = static_cast<std::int32_t>(std::clamp<std::int64_t>(blocks, 1, kMostPages));
    replica.tier = free_tier_cost("free").value();
  }
  return options;
}

Result<BurstNeed> burst_need(const SimulatedMachine& machine, const SimulatedLoadOptions& load,
                             const MemoryProfileOptions& options, double rate, double times,
                             const ProgressReport& progress) {
  SimulatedLoadOptions burst = load;
  burst.num_requests.reset();
  burst.rate_steps =
      fmt::format("{0:.6f}x{1},{2:.6f}x{1},{0:.6f}x{1}", rate, options.burst_seconds, rate * times);
  ASSIGN_OR_RETURN(const SimulatedLoad made, SimulatedLoad::make(burst));
  ASSIGN_OR_RETURN(
      const SimulationResult run,
      simulate(made.trace(), taking_turns(machine, made.trace()), *machine.cost, progress));
  const std::int64_t usable = machine.options.replica.num_blocks - 1;
  return BurstNeed{times, std::max<std::int64_t>(0, run.stats.peak_started_blocks - usable)};
}

void classify(const MemoryProfileOptions& options, std::int64_t swap_blocks,
              MemoryProfile& profile) {
  const std::int64_t spare = profile.kv_blocks - profile.held_blocks;
  profile.producer = spare > options.lend_blocks || swap_blocks == 0;
  profile.spare_blocks = spare > options.lend_blocks ? spare : -swap_blocks;
}

Error no_rate(const CapacityOptions& options, const CapacityResult& result) {
  const CapacityProbe& last = result.probes.back();
  std::string ttft;
  if (options.objective.ttft) {
    ttft = fmt::format(" and a P{:g} TTFT of {:.1f} ms", options.objective.ttft_percentile,
                       to_milliseconds(*options.objective.ttft));
  }
  return invalid_argument(fmt::format(
      "no rate meets a P99 TBT of {:.1f} ms{}; at {:.4g} requests per second they are {:.1f} and "
      "{:.1f} ms. Raise the objective, lower --token-budget, or give shorter --lengths",
      to_milliseconds(options.objective.p99_tbt), ttft, last.rate, to_milliseconds(last.p99_tbt),
      to_milliseconds(last.ttft)));
}

}  // namespace

Result<MemoryProfile> profile_memory(const SimulatedMachine& machine,
                                     const SimulatedLoadOptions& load,
                                     const MemoryProfileOptions& options,
                                     const ProgressReport& progress) {
  ASSIGN_OR_RETURN(const SimulatedLoad steady, SimulatedLoad::make(load));
  CHECK(!steady.has_times());
  MemoryProfile profile;
  profile.kv_blocks = machine.options.replica.num_blocks - 1;
  ASSIGN_OR_RETURN(profile.capacity,
                   find_simulated_capacity(machine, steady, options.capacity, progress));
  const double rate = profile.capacity.rate;
  if (rate == 0) return no_rate(options.capacity, profile.capacity);
  if (profile.capacity.failing_rate == 0) {
    return invalid_argument(fmt::format(
        "every rate that was tried meets the objective, the last one {:.6g} requests per second; "
        "lower the objective or raise --num-requests",
        rate));
  }
  ASSIGN_OR_RETURN(const Workload workload, steady.at_rate(rate));
  ASSIGN_OR_RETURN(const SimulationResult run,
                   simulate(workload, machine.options, *machine.cost, progress));
  profile.held_blocks = run.stats.peak_held_blocks;
  std::int64_t swap = 0;
  for (const double times : options.bursts) {
    ASSIGN_OR_RETURN(const BurstNeed need,
                     burst_need(machine, load, options, rate, times, progress));
    profile.bursts.push_back(need);
    swap = std::max(swap, need.swap_blocks);
  }
  classify(options, swap, profile);
  return profile;
}

Result<MemoryProfile> profile_batches(const SimulatedMachine& machine, std::int32_t prompt_tokens,
                                      std::int32_t output_tokens,
                                      const MemoryProfileOptions& options,
                                      const ProgressReport& progress) {
  MemoryProfile profile;
  profile.kv_blocks = machine.options.replica.num_blocks - 1;
  SimulationOptions roomy = machine.options;
  ReplicaOptions& replica = roomy.replica;
  const std::int64_t each = (prompt_tokens + output_tokens) / replica.block_size + 2;
  const std::int64_t most = 2 * each * replica.max_num_seqs;  // a share stays free at admission
  if (most > std::numeric_limits<std::int32_t>::max() / 2) {
    return invalid_argument(
        "the fixed batches need more KV blocks than can be counted; lower --max-num-seqs");
  }
  replica.num_blocks = std::max(replica.num_blocks, static_cast<std::int32_t>(most));
  for (std::int32_t batch = 1; batch <= replica.max_num_seqs; batch *= 2) {
    Workload workload;
    workload.requests.resize(static_cast<std::size_t>(batch));
    for (WorkloadRequest& request : workload.requests) {
      request.prompt_tokens = prompt_tokens;
      request.output_tokens = output_tokens;
    }
    ASSIGN_OR_RETURN(const SimulationResult run,
                     simulate(workload, roomy, *machine.cost, progress));
    const double before = profile.batches.empty() ? 0 : profile.batches.back().tokens_per_s;
    profile.batches.push_back({batch, run.summary.output_throughput(), run.stats.peak_held_blocks});
    if (profile.batches.back().tokens_per_s < (1 + kLeastGain) * before) break;
    profile.saturated_batch = batch;
    profile.held_blocks = run.stats.peak_held_blocks;
  }
  classify(options, std::max<std::int64_t>(0, profile.held_blocks - profile.kv_blocks), profile);
  return profile;
}

}  // namespace sluice
