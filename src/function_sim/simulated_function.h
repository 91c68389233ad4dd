// SimulatedFunction: a function as the simulator knows it.
// Values: plain. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function_sim/cluster_file.h"
#include "function_sim/function_calls.h"
#include "serverless/functions_file.h"

namespace sluice {

struct SimulatedFunction {
  std::int32_t model = 0;     // of ClusterSpec::models
  std::int32_t adapters = 1;  // in its process; 0: the model itself
  Duration ttft_slo{0};
  Duration idle{0};
  std::int32_t tenant = 0;
};

// Matches the backbones of the file with the models of the cluster.
Result<std::vector<SimulatedFunction>> simulated_functions(const FunctionsFile& file,
                                                           const ClusterSpec& cluster);

// One function for each backbone, which gets the calls of all of its functions.
struct MergedFunctions {
  std::vector<SimulatedFunction> functions;
  std::vector<FunctionCall> calls;
};
MergedFunctions merge_functions(std::span<const SimulatedFunction> functions,
                                std::span<const FunctionCall> calls);

}  // namespace sluice
