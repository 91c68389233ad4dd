// From the arguments of `sluice simulate` to something that can run. Errors name the option.
// Values: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "apps/simulate.h"
#include "base/result.h"
#include "profile/machine_profile.h"
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
  enum class Budget : std::uint8_t { kTokens, kAuto, kTime };
  Budget budget = Budget::kTokens;
  double predictor_noise = 0;
  double predictor_scale = 1;
  double predictor_skew = 0;
  bool predictor_learns = true;
  std::uint64_t seed = 0;
  std::vector<double> percentiles;
};

// `profile`: the one that --profile names, or null.
Result<SimulateSettings> parse_simulate_settings(const SimulateArguments& arguments,
                                                 const MachineProfile* profile);
// As given, not split yet and not checked for fitting.
Result<Deployment> parse_deployment(const SimulateArguments& arguments);

// One deployment or profiled machine, ready to run: sized memory, a token budget, step times.
struct SimulatedMachine {
  std::string gpu;    // or the profiled device
  std::string model;  // its name
  std::string host_stack;
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  SimulationOptions options;
  std::unique_ptr<StepCost> cost;
  Duration reference_decode{0};
  std::optional<Duration> tbt_slo;  // as asked: in milliseconds, or as a multiple of a decode step
  std::optional<PredictionError> predictor;  // of --token-budget time, on held-out points
};

Result<SimulatedMachine> make_machine(const Deployment& deployment,
                                      const SimulateSettings& settings,
                                      const SimulateArguments& arguments);
Result<SimulatedMachine> make_profiled_machine(const MachineProfile& profile,
                                               const SimulateSettings& settings,
                                               const SimulateArguments& arguments);

}  // namespace sluice
