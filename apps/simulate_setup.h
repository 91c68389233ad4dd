// From the arguments of `sluice simulate` to something that can run. Errors name the option.
// Values: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "apps/simulate.h"
#include "base/result.h"
#include "sim/deployment.h"
#include "sim/simulation.h"
#include "workload/lengths.h"
#include "workload/trace_file.h"
#include "workload/workload.h"

namespace sluice {

// What is asked: a trace, or lengths that come at any rate.
class SimulatedLoad {
 public:
  static Result<SimulatedLoad> make(const SimulateArguments& arguments, std::int32_t context);

  bool has_times() const { return trace_.has_value(); }
  // REQUIRES: !has_times().
  Result<Workload> at_rate(double rate) const;
  const Workload& trace() const { return *trace_; }

 private:
  std::optional<Workload> trace_;
  std::vector<RequestLengths> lengths_;
  std::string spec_;
  double burstiness_ = 1;
  std::uint64_t seed_ = 0;
};

// The scheduler's side of a run, before the deployment is known.
struct SimulateSettings {
  SimulationOptions simulation;  // without num_blocks and window
  bool choose_budget = false;    // --token-budget auto
  std::vector<double> percentiles;
};

// Tokens of the longest request: --max-model-len, or what suits the lengths.
Result<std::int32_t> simulated_context(const SimulateArguments& arguments);
Result<SimulateSettings> parse_simulate_settings(const SimulateArguments& arguments);
// As given, not split yet and not checked for fitting.
Result<Deployment> parse_deployment(const SimulateArguments& arguments);

// One deployment, ready to run: sized memory, a token budget, its cost model.
struct SimulatedMachine {
  Deployment deployment;
  MemoryPlan memory;
  SimulationOptions options;
  std::unique_ptr<StepCost> cost;
  Duration reference_decode{0};
  std::optional<Duration> tbt_slo;  // as asked: in milliseconds, or as a multiple of a decode step
};

Result<SimulatedMachine> make_machine(const Deployment& deployment,
                                      const SimulateSettings& settings,
                                      const SimulateArguments& arguments);

}  // namespace sluice
