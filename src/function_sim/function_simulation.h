// FunctionSimulation: many functions on one cluster in virtual time, with the policies of
// src/serverless that the gateway runs: rates, pre-loading, offloading, batching, scaling, bills.
// A SystemSpec leaves parts of them out, as other systems do.
//
// A device computes one batch of prompts at a time; a sequence then decodes at the speed that the
// number of sequences on the device gives at its start. A function has one instance at most. Memory
// for KV is not part of it. The same input gives the same report.
// Owner: any. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function_sim/cluster_file.h"
#include "function_sim/function_calls.h"
#include "serverless/artifact_catalog.h"
#include "serverless/bill.h"
#include "serverless/functions_file.h"

namespace sluice {

struct SystemSpec {
  std::string name;
  bool shares_backbones = true;  // false: each function has a copy of its own
  bool always_on = false;        // all functions live from the start, and are never ended
  bool refuses = true;           // calls that would miss their SLO
  bool keeps = true;             // ended instances' artifacts, while there is room
  std::vector<ArtifactKind> preloads;
  double disk_speed = 1;  // of loads of weights from disk, over that of the cluster file
  Batching batching = Batching::kWorkConserving;
};

// "sluice", its ablations "sluice-no-sharing", "sluice-no-preload", "sluice-no-offload",
// "sluice-fill-or-expire"; "vllm", "instainfer", "serverlessllm".
Result<SystemSpec> system_named(std::string_view name);
std::vector<std::string> system_names();

struct SimulatedFunction {
  std::int32_t model = 0;  // of ClusterSpec::models
  bool has_adapter = true;
  Duration ttft_slo{0};
  Duration idle{0};
};

// Matches the backbones of the file with the models of the cluster.
Result<std::vector<SimulatedFunction>> simulated_functions(const FunctionsFile& file,
                                                           const ClusterSpec& cluster);

struct Quantiles {  // seconds
  double mean = 0;
  double p50 = 0;
  double p99 = 0;
};

struct FunctionReport {
  std::int64_t calls = 0;
  std::int64_t answered = 0;
  std::int64_t refused = 0;     // they would have missed their SLO
  std::int64_t unplaced = 0;    // they waited for a place for too long
  std::int64_t violations = 0;  // answered later than their SLO; the time of a start counts
  std::int64_t cold = 0;        // calls that found no instance that could compute
  std::int64_t starts = 0;
  std::int64_t preloads = 0;
  std::int64_t offloads = 0;
  Quantiles ttft;
  Quantiles e2e;
  double tpot_s = 0;   // mean
  double cost = 0;     // of all functions, in the currency of the price list
  double seconds = 0;  // until the last answer
};

// REQUIRES: calls in order of arrival, of functions that there are.
FunctionReport simulate_functions(const ClusterSpec& cluster,
                                  std::span<const SimulatedFunction> functions,
                                  std::span<const FunctionCall> calls, const SystemSpec& system,
                                  const PriceList& prices);

}  // namespace sluice
