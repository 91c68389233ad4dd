// `sluice bench offline`: measures an engine without a server: throughput of a workload, latency of
// batches, and prefill and decode separately. One thread, and the engine's pool.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/bench_options.h"
#include "apps/engine_arguments.h"

namespace sluice {

// As given; absent = not given.
struct OfflineArguments {
  std::string model;
  BenchArguments bench;  // uses its requests and outputs
  std::optional<std::int32_t> batch_size;
  std::optional<std::int32_t> num_warmups;
  std::vector<std::string> model_names;  // adapters, or "base", that requests use in turn
  std::string output_json;
  std::string trace;  // a file
  EngineOptionTexts engine;
};

// Returns the exit code: 0 only when no request failed.
int run_bench_offline(const OfflineArguments& arguments);

}  // namespace sluice
