// FunctionSimulation: many functions on one cluster in virtual time, with the policies of
// src/serverless that the gateway runs: rates, pre-loading, offloading, batching, scaling, bills.
// A SystemSpec leaves parts of them out, as other systems do.
//
// A device computes one batch of prompts at a time; a sequence then decodes at the speed that the
// number of sequences on the device gives at its start. Memory for KV is not part of a device.
// On a machine of cores, the engines of functions compute in steps and take turns (core_engines.h),
// calls are dispatched by the gateway's rules for tenants, and the memory of a process grows by the
// KV of its calls, which the prefix cache keeps. A function has one instance at most. The same
// input gives the same report. Owner: any. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "function_sim/call_times.h"
#include "function_sim/cluster_file.h"
#include "function_sim/function_calls.h"
#include "function_sim/simulated_function.h"
#include "function_sim/simulated_system.h"
#include "serverless/bill.h"

namespace sluice {

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
  double tpot_s = 0;                       // mean
  std::array<double, kCallParts> parts{};  // seconds of an answered call, mean
  double core_seconds = 0;                 // of all functions, as what follows
  double gb_seconds = 0;                   // of memory
  double cost = 0;                         // in the currency of the price list
  double seconds = 0;                      // until the last answer
};

// REQUIRES: calls in order of arrival, of functions that there are.
FunctionReport simulate_functions(const ClusterSpec& cluster,
                                  std::span<const SimulatedFunction> functions,
                                  std::span<const FunctionCall> calls, const SystemSpec& system,
                                  const PriceList& prices);

}  // namespace sluice
