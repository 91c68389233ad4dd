// Capacity searches in the simulator: finds the largest rate of one machine, and ranks the
// deployments of a number of GPUs by capacity. One thread; a search runs one simulation for every
// probe.
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

// REQUIRES: the load has no arrival times. Errors are those of a run: kCancelled from `progress`.
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

// All powers of two of tp and pp that fit the GPUs, with each token budget of the search.
// Capacities are not set.
std::vector<DeploymentChoice> deployment_choices(std::int32_t gpus);

struct DeploymentSearch {
  std::vector<DeploymentChoice> found;  // the highest capacity first
  std::size_t tried = 0;                // including choices that do not fit in memory
};

// The capacity of a choice is one replica's capacity times the number of replicas, because their
// arrivals are independent. REQUIRES: options.tbt_slo_ms, the objective of all choices. If no
// choice fits in memory, returns the error of the last one.
using ChoiceProgress = std::function<bool(const DeploymentChoice&, double)>;
Result<DeploymentSearch> search_deployments(const Deployment& deployment, std::int32_t gpus,
                                            const SimulatedMachineOptions& options,
                                            const SimulatedLoad& load,
                                            const CapacityOptions& capacity,
                                            const ChoiceProgress& progress = {});

}  // namespace sluice
