// Capacity searches in the simulator: the largest rate of one machine, and the deployments of a
// number of GPUs by their capacity.
// One thread; a search simulates once for every probe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "sim/simulated_load.h"
#include "sim/simulated_machine.h"
#include "workload/capacity_search.h"

namespace sluice {

// REQUIRES: the load has no times of its own. Errors are those of a run: kCancelled from
// `progress`.
Result<CapacityResult> find_simulated_capacity(const SimulatedMachine& machine,
                                               const SimulatedLoad& load,
                                               const CapacityOptions& options,
                                               const ProgressReport& progress = {});

// One way to use the GPUs.
struct DeploymentChoice {
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  std::int32_t token_budget = 0;
  std::int32_t replicas = 1;
  double capacity = 0;  // of all replicas, requests per second
};

// Every power of two of tp and pp that the GPUs hold, with each of the token budgets that the
// search knows; capacities are not set.
std::vector<DeploymentChoice> deployment_choices(std::int32_t gpus);

struct DeploymentSearch {
  std::vector<DeploymentChoice> found;  // the highest capacity first
  std::size_t tried = 0;                // with those that do not fit in memory
};

// The capacity of a choice is its replica's capacity times its replicas: their arrivals are
// independent. REQUIRES: options.tbt_slo_ms, which is the objective of all of them. The error of
// the last choice when none fits in memory.
using ChoiceProgress = std::function<bool(const DeploymentChoice&, double)>;
Result<DeploymentSearch> search_deployments(const Deployment& deployment, std::int32_t gpus,
                                            const SimulatedMachineOptions& options,
                                            const SimulatedLoad& load,
                                            const CapacityOptions& capacity,
                                            const ChoiceProgress& progress = {});

}  // namespace sluice
