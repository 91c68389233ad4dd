// The memory part of `sluice profile`: the largest rate within objectives for TTFT and TBT, the KV
// memory in use at that rate, and whether the model can lend memory or needs more
// (docs/placement.md). On a measured profile, or on a simulated GPU. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "apps/engine_arguments.h"
#include "base/result.h"
#include "profile/machine_profile.h"
#include "sim/memory_profile.h"

namespace sluice {

// As given; absent or empty = not given.
struct MemoryProfileArguments {
  std::optional<double> slo_ttft_ms;
  std::optional<double> slo_tbt_ms;
  double ttft_percentile = 99;
  bool fixed_batches = false;
  std::string lengths;
  std::optional<std::int64_t> num_requests;
  std::uint64_t seed = 0;
  std::string lend_threshold;
  double burst_seconds = 60;
  // A simulated machine instead of a measured one.
  std::string gpu;
  std::int32_t tp = 1;
  std::string host_stack = "native";
};

// Whether a memory profile is asked for. Errors name the option that is missing or too much.
Result<bool> wants_memory_profile(const MemoryProfileArguments& arguments);

struct MemoryFindings {
  std::string model;
  std::string lengths;
  std::optional<double> slo_ttft_ms;
  std::optional<double> slo_tbt_ms;
  double ttft_percentile = 99;
  std::int32_t tensor_parallel = 1;
  std::int32_t token_budget = 0;
  double block_gb = 0;  // of a KV block, on one GPU
  double threshold_gb = 0;
  MemoryProfile profile;
};

// `model`: a name of `sluice simulate --list`. `engine`: only the options that concern scheduling
// may be given.
Result<MemoryFindings> profile_simulated_memory(const std::string& model,
                                                const MemoryProfileArguments& arguments,
                                                const EngineOptionTexts& engine);

// `kv_bytes`: the server's KV memory. `kv_bytes_per_token`: of all layers.
Result<MemoryFindings> profile_measured_memory(const MachineProfile& measured,
                                               const MemoryProfileArguments& arguments,
                                               const EngineOptionTexts& engine,
                                               std::int64_t kv_bytes,
                                               std::int64_t kv_bytes_per_token);

std::string memory_findings_text(const MemoryFindings& findings);
nlohmann::ordered_json memory_findings_json(const MemoryFindings& findings);

}  // namespace sluice
