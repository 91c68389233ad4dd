#include "sim/simulated_capacity.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::array<std::int32_t, 6> kTokenBudgets = {256, 512, 1024, 1536, 2048, 4096};

}  // namespace

Result<CapacityResult> find_simulated_capacity(const SimulatedMachine& machine,
                                               const SimulatedLoad& load,
                                               const CapacityOptions& options,
                                               const ProgressReport& progress) {
  return search_capacity(options, [&](double rate) -> Result<CapacityProbe> {
    ASSIGN_OR_RETURN(const Workload workload, load.at_rate(rate));
    ASSIGN_OR_RETURN(const SimulationResult run,
                     simulate(workload, machine.options, *machine.cost, progress));
    CapacityProbe probe;
    probe.p99_tbt = run.summary.tbt.percentile(99);
    probe.median_scheduling_delay = run.summary.scheduling_delay.percentile(50);
    probe.ttft = run.summary.ttft.percentile(options.objective.ttft_percentile);
    return probe;
  });
}

std::vector<DeploymentChoice> deployment_choices(std::int32_t gpus) {
  std::vector<DeploymentChoice> choices;
  for (std::int32_t tp = 1; tp <= gpus; tp *= 2) {
    for (std::int32_t pp = 1; tp * pp <= gpus; pp *= 2) {
      for (const std::int32_t budget : kTokenBudgets) {
        choices.push_back({tp, pp, budget, gpus / (tp * pp), 0});
      }
    }
  }
  return choices;
}

Result<DeploymentSearch> search_deployments(const Deployment& deployment, std::int32_t gpus,
                                            const SimulatedMachineOptions& options,
                                            const SimulatedLoad& load,
                                            const CapacityOptions& capacity,
                                            const ChoiceProgress& progress) {
  CHECK(options.tbt_slo_ms && gpus >= 1);
  DeploymentSearch search;
  std::optional<Error> last_misfit;
  for (DeploymentChoice& choice : deployment_choices(gpus)) {
    ++search.tried;
    Deployment split = deployment;
    split.tp = choice.tp;
    split.pp = choice.pp;
    SimulatedMachineOptions own = options;
    own.budget = SimulatedMachineOptions::Budget::kTokens;
    own.simulation.replicas = 1;
    own.simulation.replica.token_budget = choice.token_budget;
    auto machine = make_machine(split, own);
    if (!machine) {
      last_misfit = std::move(machine).error();
      continue;
    }
    CapacityOptions within = capacity;
    within.objective.p99_tbt = *machine->tbt_slo;
    ASSIGN_OR_RETURN(const CapacityResult result,
                     find_simulated_capacity(*machine, load, within, [&](double share) {
                       return !progress || progress(choice, share);
                     }));
    choice.capacity = result.rate * choice.replicas;
    search.found.push_back(choice);
  }
  if (search.found.empty()) return *last_misfit;
  std::stable_sort(
      search.found.begin(), search.found.end(),
      [](const DeploymentChoice& a, const DeploymentChoice& b) { return a.capacity > b.capacity; });
  return search;
}

}  // namespace sluice
