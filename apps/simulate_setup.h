// Converts the arguments of `sluice simulate` to the options of the simulator. Errors name the
// option. Values: one thread.
#pragma once

#include <vector>

#include "apps/simulate.h"
#include "base/result.h"
#include "profile/machine_profile.h"
#include "sim/deployment.h"
#include "sim/simulated_load.h"
#include "sim/simulated_machine.h"

namespace sluice {

struct SimulateSettings {
  SimulatedMachineOptions machine;
  SimulatedLoadOptions load;
  std::vector<double> percentiles;
};

// `profile`: the one that --profile names, or null.
Result<SimulateSettings> parse_simulate_settings(const SimulateArguments& arguments,
                                                 const MachineProfile* profile);
// Does not check whether the deployment fits; make_machine() does.
Result<Deployment> parse_deployment(const SimulateArguments& arguments);

}  // namespace sluice
