// Hardware of the simulator: named GPUs by their data sheets, the links between them, and the host
// costs of serving software. The numbers were fixed before the first simulated figure and are not
// fitted (docs/simulator.md gives every source).
// Constants; any thread. Units: bytes, seconds, operations.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct GpuSpec {
  std::string_view name;
  double flops = 0;          // dense BF16/FP16 tensor operations per second, FP32 accumulation
  double bandwidth = 0;      // of the device memory, bytes per second
  double memory_bytes = 0;   // of the device
  std::int32_t num_sms = 0;  // streaming multiprocessors, which run the thread blocks of a GEMM
  // GPUs that NVLink joins: all of a node (8), pairs by a bridge (2), none (1).
  std::int32_t nvlink_group = 1;
  double nvlink_bandwidth = 0;  // bytes per second and direction
  double pcie_bandwidth = 0;    // bytes per second and direction
};

// The host's cost of a step, besides the GPU's time. `python` is the kind of stack that papers of
// 2023 and 2024 measured: PyTorch without graphs, a scheduler in Python, an RPC to each worker.
// `native` is this engine: captured graphs, a scheduler of nanoseconds per sequence.
struct HostStack {
  std::string_view name;
  // The time to launch a layer's kernels one by one. Launches run ahead of the GPU, so a step takes
  // at least as long as its launches. 0: a graph is replayed.
  double launch_per_layer = 0;
  double step = 0;     // between two steps, when the GPU waits
  double per_row = 0;  // and in addition for each sequence of the step
};

// The share of a data sheet's number that well-written kernels reach, and fixed costs. One set for
// all GPUs and models.
struct Achievable {
  double matmul_flops = 0.70;
  double attention_flops = 0.50;
  double bandwidth = 0.80;
  double link_bandwidth = 0.75;     // NVLink and PCIe
  double network_bandwidth = 0.40;  // sockets
  double kernel = 2e-6;             // between two kernels on the GPU
  double collective = 5e-6;         // start of a collective
  double nvlink_hop = 3e-6;
  double pcie_hop = 8e-6;
  double network_hop = 50e-6;
  // The start of a copy between two GPUs: 4 MB at 50 GB/s and 64 MB at 200 GB/s between two A100
  // (Aqua, section 5.1) are 64 microseconds and 250 GB/s.
  double nvlink_copy = 64e-6;
  double usable_memory = 0.90;  // as --gpu-memory-utilization elsewhere
};

inline constexpr Achievable kAchievable;

// The cost of transfers beside compute, which run one after another over one link.
struct TransferCost {
  double latency = 0;  // seconds before the first byte
  double bytes_per_second = 1;
  double adapter_bytes = 0;  // of one load
};

// A tier below the memory of each GPU (offload/kv_tier.h), over a link that carries both directions
// at once. The blocks that one plan moves in one direction are one copy, so they pay its latency
// once: a small copy is slow for its bytes.
struct TierCost {
  double latency = 0;  // seconds before the first byte
  double bytes_per_second = 1;
  double block_bytes = 0;           // of one rank
  bool shares_collectives = false;  // ranks sum their results over the same link
};

// `link`: "pcie" (host memory), "nvlink" (another GPU's memory), "free" (takes no time), or GB/s of
// any other, such as "2.5". kInvalidArgument when it is none of these or the GPU has no NVLink.
Result<TierCost> tier_cost(const GpuSpec& gpu, std::string_view link, double block_bytes);
// The same without a GPU: "free" is the only link whose time needs no bytes.
Result<TierCost> free_tier_cost(std::string_view link);

// Loads of adapters from host memory over the GPU's PCIe link.
TransferCost adapter_load_cost(const GpuSpec& gpu, double adapter_bytes);

std::span<const GpuSpec> gpu_specs();
std::span<const HostStack> host_stacks();
// kInvalidArgument listing the known names.
Result<GpuSpec> find_gpu(std::string_view name);
Result<HostStack> find_host_stack(std::string_view name);

}  // namespace sluice
