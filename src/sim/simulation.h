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
#include "sim/replica.h"
#include "sim/step_cost.h"
#include "workload/capacity_search.h"
#include "workload/serving_summary.h"
#include "workload/workload.h"

namespace sluice {

enum class Dispatch : std::uint8_t {
  kRoundRobin,
  kLeastLoaded,  // the fewest requests that wait or run; the first of several
};

// kInvalidArgument listing the known names: "round-robin", "least-loaded".
Result<Dispatch> find_dispatch(std::string_view name);

struct SimulationOptions {
  ReplicaOptions replica;
  std::int32_t replicas = 1;
  Dispatch dispatch = Dispatch::kRoundRobin;
  Goodput goodput;
};

struct SimulationResult {
  ServingSummary summary;
  ReplicaStats stats;  // of all replicas
};

// Told the share of the arrivals that are behind; false ends the run with kCancelled.
using ProgressReport = std::function<bool(double)>;

// REQUIRES: check_replica_options(options.replica).
Result<SimulationResult> simulate(const Workload& workload, const SimulationOptions& options,
                                  StepCost& cost, const ProgressReport& progress = {});

// The time that the paper's SLOs are multiples of (5 strict, 25 relaxed): a decode step of 32
// sequences with 4,096 tokens of context each.
Duration reference_decode(StepCost& cost);

// The largest token budget, of `candidates` in ascending order, whose steps take at most `slo`:
// `decodes` sequences with `context` tokens of context, and one chunk at the end of a prompt of
// that length with what the budget leaves. Nothing when none does.
std::optional<std::int32_t> budget_within(StepCost& cost, Duration slo, std::int32_t decodes,
                                          std::int32_t context,
                                          const std::vector<std::int32_t>& candidates);

}  // namespace sluice
