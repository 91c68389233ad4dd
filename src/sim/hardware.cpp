#include "sim/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "base/text.h"

namespace sluice {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// Dense rates: data sheets print BF16 for Hopper and Ada with sparsity, twice as much.
constexpr std::array kGpus = {
    // NVIDIA A100 data sheet (June 2021), SXM: 312 TFLOPS, 80 GB HBM2e at 2,039 GB/s, NVLink
    // 600 GB/s both ways, PCIe 4.0 x16; 108 SMs (A100 architecture whitepaper).
    GpuSpec{"a100-80g", 312 * kTera, 2039 * kGiga, 80 * kGiga, 108, 8, 300 * kGiga, 32 * kGiga},
    // The same data sheet, PCIe: 1,935 GB/s, NVLink bridge for two GPUs.
    GpuSpec{"a100-80g-pcie", 312 * kTera, 1935 * kGiga, 80 * kGiga, 108, 2, 300 * kGiga,
            32 * kGiga},
    // A100 architecture whitepaper (2020), SXM: 40 GB HBM2 at 1,555 GB/s.
    GpuSpec{"a100-40g", 312 * kTera, 1555 * kGiga, 40 * kGiga, 108, 8, 300 * kGiga, 32 * kGiga},
    // NVIDIA A40 data sheet: 149.7 TFLOPS, 48 GB GDDR6 at 696 GB/s, NVLink bridge 112.5 GB/s both
    // ways; 84 SMs.
    GpuSpec{"a40", 149.7 * kTera, 696 * kGiga, 48 * kGiga, 84, 2, 56.25 * kGiga, 32 * kGiga},
    // NVIDIA H100 data sheet, SXM5: 1,979 TFLOPS with sparsity, 80 GB at 3.35 TB/s, NVLink 900 GB/s
    // both ways, PCIe 5.0; 132 SMs (H100 architecture whitepaper).
    GpuSpec{"h100", 989.5 * kTera, 3350 * kGiga, 80 * kGiga, 132, 8, 450 * kGiga, 64 * kGiga},
    // NVIDIA H200 data sheet, SXM: as H100 with 141 GB at 4.8 TB/s.
    GpuSpec{"h200", 989.5 * kTera, 4800 * kGiga, 141 * kGiga, 132, 8, 450 * kGiga, 64 * kGiga},
    // NVIDIA L40S data sheet: 362.05 TFLOPS, 48 GB GDDR6 at 864 GB/s, no NVLink; 142 SMs.
    GpuSpec{"l40s", 362.05 * kTera, 864 * kGiga, 48 * kGiga, 142, 1, 0, 32 * kGiga},
};

constexpr std::array kStacks = {
    // Graph replay and one upload of inputs; a scheduler of 50 ns per sequence
    // (docs/scheduling.md).
    HostStack{"native", 0, 50e-6, 0.1e-6},
    // PyTorch runs Llama-7B on an A100 at 25.5 tokens per second when each operation is launched
    // from Python: 1.2 ms for each of 32 layers ("Accelerating generative AI with PyTorch II",
    // 2023). Serving engines of that time had half as many, fused, operations. Their scheduler
    // took 2 to 2.5 ms a step, inputs and RPC as much again, and some 10 microseconds a sequence.
    HostStack{"python", 0.6e-3, 5e-3, 10e-6},
};

template <class T>
Result<T> find(std::string_view what, std::string_view name, std::span<const T> all) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const T& t) { return t.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string_view> names;
  for (const T& t : all) names.push_back(t.name);
  return invalid_argument(
      fmt::format("{} '{}' is unknown; known are {}", what, name, join(names, ", ")));
}

}  // namespace

TransferCost adapter_load_cost(const GpuSpec& gpu, double adapter_bytes) {
  return {kAchievable.pcie_hop, gpu.pcie_bandwidth * kAchievable.link_bandwidth, adapter_bytes};
}

Result<TierCost> free_tier_cost(std::string_view link) {
  if (link == "free") return TierCost{.bytes_per_second = 1, .block_bytes = 0};
  return invalid_argument(
      fmt::format("with a profile, whose KV has no bytes, the link must be free, got '{}'", link));
}

Result<TierCost> tier_cost(const GpuSpec& gpu, std::string_view link, double block_bytes) {
  if (link == "free") return free_tier_cost(link);
  TierCost cost{.block_bytes = block_bytes};
  if (link == "pcie") {
    cost.latency = kAchievable.pcie_hop;
    cost.bytes_per_second = gpu.pcie_bandwidth * kAchievable.link_bandwidth;
    return cost;
  }
  if (link == "nvlink") {
    if (gpu.nvlink_group < 2) {
      return invalid_argument(fmt::format("{} has no NVLink; use pcie or GB/s", gpu.name));
    }
    cost.latency = kAchievable.nvlink_copy;
    cost.bytes_per_second = gpu.nvlink_bandwidth * kAchievable.link_bandwidth;
    cost.shares_collectives = true;
    return cost;
  }
  double rate = 0;
  const auto [stop, error] = std::from_chars(link.data(), link.data() + link.size(), rate);
  if (error != std::errc() || stop != link.data() + link.size() || !(rate >= 1e-3 && rate <= 1e5)) {
    return invalid_argument(fmt::format(
        "'{}' is no link; use pcie, nvlink, free or a number of GB/s from 0.001 to 100000", link));
  }
  cost.latency = kAchievable.pcie_hop;
  cost.bytes_per_second = rate * kGiga;
  return cost;
}

std::span<const GpuSpec> gpu_specs() { return kGpus; }
std::span<const HostStack> host_stacks() { return kStacks; }

Result<GpuSpec> find_gpu(std::string_view name) { return find("GPU", name, gpu_specs()); }

Result<HostStack> find_host_stack(std::string_view name) {
  return find("host stack", name, host_stacks());
}

}  // namespace sluice
