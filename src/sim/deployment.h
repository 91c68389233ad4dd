// Deployment: a model on GPUs, split by tensor and pipeline parallelism, and the use of their
// memory. Plain data; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "sim/hardware.h"
#include "sim/model_shapes.h"

namespace sluice {

inline constexpr double kNumberBytes = 2;  // BF16 and FP16: weights, activations, KV

struct Deployment {
  GpuSpec gpu;
  ModelShape model;
  std::int32_t tp = 1;                // ranks that share each layer
  std::int32_t pp = 1;                // stages, each with a share of the layers
  std::int32_t gpus_per_node = 8;     // more GPUs communicate over the network
  double network_bandwidth = 12.5e9;  // of a node, bytes per second and direction: 100 Gbit/s
  HostStack host;
  // Bytes per second that another GPU moves from or to the memory of each of these over NVLink, all
  // the time: memory that is lent. Each byte takes the memory's and the link's time from the model.
  double lent_traffic = 0;

  std::int32_t num_gpus() const { return tp * pp; }
  // The first stages have the larger shares.
  std::int32_t stage_layers(std::int32_t stage) const {
    return model.layers / pp + (stage < model.layers % pp ? 1 : 0);
  }
  // KV heads of one rank; with more ranks than heads, ranks hold copies.
  std::int32_t rank_kv_heads() const { return model.kv_heads > tp ? model.kv_heads / tp : 1; }
  // K and V of one token in one layer on one rank.
  double kv_bytes() const { return 2.0 * rank_kv_heads() * model.head_dim * kNumberBytes; }
};

// kInvalidArgument when the model cannot be split that way.
Status check_deployment(const Deployment& deployment);

// Bytes on the GPU with the least free memory.
struct MemoryPlan {
  double usable = 0;
  double weights = 0;
  double activations = 0;  // of the largest step
  double kv = 0;           // what is left
  double kv_per_token = 0;
  std::int32_t num_blocks = 0;  // the null block included
};

// `max_step_tokens` in a step, `context` tokens of one sequence. kResourceExhausted, with the
// missing amount, if not even one context fits.
Result<MemoryPlan> plan_memory(const Deployment& deployment, std::int64_t max_step_tokens,
                               std::int32_t context, std::int32_t block_size);

}  // namespace sluice
