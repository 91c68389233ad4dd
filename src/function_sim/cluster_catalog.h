// The artifacts of simulated functions on a simulated cluster, for FunctionCluster: what each
// system has to load, and the memories for it. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "function_sim/cluster_file.h"
#include "function_sim/simulated_function.h"
#include "function_sim/simulated_system.h"
#include "serverless/artifact_catalog.h"

namespace sluice {

CatalogSpec catalog_of(const ClusterSpec& cluster, std::span<const SimulatedFunction> functions,
                       const SystemSpec& system);
// Bytes of each memory of that catalog.
std::vector<std::int64_t> memories_of(const ClusterSpec& cluster);

}  // namespace sluice
