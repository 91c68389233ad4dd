// SimulatedMachine: a deployment or a profiled machine that is ready for simulate(), with its KV
// size, token budget and step cost.
// Errors: kInvalidArgument and kResourceExhausted name the option of `sluice simulate`.
// Plain data; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "profile/machine_profile.h"
#include "sim/deployment.h"
#include "sim/simulation.h"

namespace sluice {

// The errors of the simulated machine's predictor; see SimulatedProfileOptions.
struct PredictorOptions {
  double noise = 0.05;
  double scale = 1;
  double skew = 0;
  bool learns = true;  // measured step times correct the predictor
  std::uint64_t seed = 0;
};

struct SimulatedMachineOptions {
  SimulationOptions simulation;  // num_blocks and window are set by the functions below
  // kAuto: the largest token budget within the SLO. kTime: chunks by predicted time.
  enum class Budget : std::uint8_t { kTokens, kAuto, kTime };
  Budget budget = Budget::kTokens;
  // The P99 TBT to keep: in milliseconds, or as a multiple of reference_decode(). At most one.
  std::optional<double> tbt_slo_ms;
  std::optional<double> tbt_slo_factor;
  PredictorOptions predictor;
  std::optional<std::int64_t>
      kv_tokens;  // of a profiled machine; absent: enough for max_num_seqs contexts
  // The link to a tier below, as tier_cost() has it; empty: there is none. Its size in tokens;
  // absent: 16 times the KV memory.
  std::string tier_link;
  // Instead: KV lies below memory, over this link, and is read in every step (streamed_cost.h).
  std::string stream_link;
  std::optional<std::int64_t> tier_tokens;
  TierEviction tier_eviction = TierEviction::kLeastRecent;
  bool tier_meets = true;  // blocks may be loaded from the back while the front is computed
};

struct SimulatedMachine {
  std::string gpu;    // or the profiled device
  std::string model;  // its name
  std::string host_stack;
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  SimulationOptions options;
  double block_bytes = 0;  // of a KV block on one GPU; 0: not known, of a profiled machine
  std::unique_ptr<StepCost> cost;
  Duration reference_decode{0};
  std::optional<Duration> tbt_slo;
  std::optional<PredictionError> predictor;  // of Budget::kTime, on held-out points
};

// Both: REQUIRES an SLO unless the budget is kTokens.
Result<SimulatedMachine> make_machine(const Deployment& deployment,
                                      const SimulatedMachineOptions& options);
Result<SimulatedMachine> make_profiled_machine(const MachineProfile& profile,
                                               const SimulatedMachineOptions& options);

}  // namespace sluice
