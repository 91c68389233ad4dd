// Simulation: a workload on replicas of one deployment, on virtual time. The same arguments give
// the same result, bit for bit, on every machine of one architecture. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/deployment.h"
#include "sim/instances.h"
#include "sim/replica.h"
#include "sim/step_cost.h"
#include "workload/autoscaler.h"
#include "workload/capacity_search.h"
#include "workload/serving_summary.h"
#include "workload/workload.h"

namespace sluice {

enum class Dispatch : std::uint8_t {
  kRoundRobin,
  kLeastLoaded,  // the fewest waiting and running requests; ties go to the first replica
};

// kInvalidArgument listing the known names: "round-robin", "least-loaded".
Result<Dispatch> find_dispatch(std::string_view name);

struct SimulationOptions {
  ReplicaOptions replica;
  std::int32_t replicas = 1;
  Dispatch dispatch = Dispatch::kRoundRobin;
  Goodput goodput;
  // One machine more, which takes what the autoscaler redirects.
  std::optional<AutoscaleOptions> autoscale = std::nullopt;
  // In place of `replicas`: they start by need.
  std::optional<InstanceOptions> instances = std::nullopt;
};

struct SimulationResult {
  ServingSummary summary;
  ReplicaStats stats;           // of all replicas
  std::int64_t redirected = 0;  // requests, by the autoscaler
  std::int64_t starts = 0;      // of instances
};

// Called with the share of the arrivals that are simulated; false ends the run with kCancelled.
using ProgressReport = std::function<bool(double)>;

// kInvalidArgument: replicas below 1, or instances beside replicas or an autoscaler.
// REQUIRES: check_replica_options(options.replica).
Result<SimulationResult> simulate(const Workload& workload, const SimulationOptions& options,
                                  StepCost& cost, const ProgressReport& progress = {});

// The unit of the paper's SLOs (strict: 5, relaxed: 25): the time of a decode step of 32 sequences
// with 4,096 tokens of context each.
Duration reference_decode(StepCost& cost);

// The largest of `candidates` (token budgets in ascending order) whose steps take at most `slo`;
// nothing if there is none. A step has `decodes` sequences with `context` tokens in KV, and the
// rest of the budget is a chunk at the end of a prompt of that length.
std::optional<std::int32_t> budget_within(StepCost& cost, Duration slo, std::int32_t decodes,
                                          std::int32_t context,
                                          const std::vector<std::int32_t>& candidates);

}  // namespace sluice
