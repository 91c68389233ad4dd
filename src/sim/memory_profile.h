// MemoryProfile: how much KV memory a model needs under its service-level objective, and whether
// its GPUs can lend memory or need more (Aqua, https://arxiv.org/abs/2407.21255, section 4). Runs
// on virtual time with the production scheduler.
//
// A producer has more spare KV memory at the largest rate within the objective than a threshold. A
// consumer needs memory to page to during bursts. A model that is neither counts as a producer with
// nothing to lend.
// Values: plain; one thread. Blocks are KV blocks of one replica, without the null block.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sim/simulated_capacity.h"
#include "sim/simulated_load.h"
#include "sim/simulated_machine.h"
#include "workload/capacity_search.h"

namespace sluice {

struct MemoryProfileOptions {
  CapacityOptions capacity;
  std::int64_t lend_blocks = 0;         // a producer has more spare blocks than this
  std::vector<double> bursts = {2, 3};  // times the largest rate
  double burst_seconds = 60;            // as long as the steady load before and after it
};

struct BurstNeed {
  double times = 0;
  std::int64_t swap_blocks = 0;  // that did not fit in KV memory at the peak
};

struct BatchStep {
  std::int32_t batch = 0;
  double tokens_per_s = 0;       // of outputs
  std::int64_t held_blocks = 0;  // at the peak; above the KV memory if that is too small
};

struct MemoryProfile {
  std::int64_t kv_blocks = 0;
  std::int64_t held_blocks = 0;  // at the largest rate, or at the batch that saturates: the peak
  std::vector<BurstNeed> bursts;
  CapacityResult capacity;         // of a load with rates
  std::vector<BatchStep> batches;  // of fixed batches; the last one adds little throughput
  std::int32_t saturated_batch = 0;
  bool producer = false;
  // Blocks that may be lent; negative: the swap space that a consumer needs.
  std::int64_t spare_blocks = 0;
};

// The largest rate within the objective, the KV memory in use at that rate, and the swap space that
// bursts need. During bursts sequences take turns (policy `fair`), so that all requests start.
// REQUIRES: `load` has no times. kInvalidArgument when no rate, or every one, meets the objective;
// kCancelled from `progress`.
Result<MemoryProfile> profile_memory(const SimulatedMachine& machine,
                                     const SimulatedLoadOptions& load,
                                     const MemoryProfileOptions& options,
                                     const ProgressReport& progress = {});

// For batches of equal requests that start together: doubles the batch until that adds less than a
// twentieth to the throughput, at most to max_num_seqs. KV memory does not bound the batch; a batch
// that saturates beyond it makes a consumer.
Result<MemoryProfile> profile_batches(const SimulatedMachine& machine, std::int32_t prompt_tokens,
                                      std::int32_t output_tokens,
                                      const MemoryProfileOptions& options,
                                      const ProgressReport& progress = {});

}  // namespace sluice
