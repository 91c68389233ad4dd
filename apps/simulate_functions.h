// `sluice simulate --functions`: the functions of a file on a simulated cluster, by one or several
// systems: times to the first token, violations, cost. One thread.
#pragma once

#include "apps/simulate.h"
#include "base/result.h"

namespace sluice {

// Prints the report of each system.
Status simulate_functions_file(const SimulateArguments& arguments);

}  // namespace sluice
