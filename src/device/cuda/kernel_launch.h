// KernelId: the kernels of this build. KernelLaunch: a kernel with its launch shape. Ids are valid
// in this process only; graphs and files name ops.
// Values: plain; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/kernel_list.h"

namespace sluice::cuda {

enum class KernelId : std::uint8_t {
#define SLUICE_KERNEL_ID(id, name, file, parameters, shared) id,
  SLUICE_KERNELS(SLUICE_KERNEL_ID)
#undef SLUICE_KERNEL_ID
      kCount
};
inline constexpr auto kNumKernels = static_cast<std::size_t>(KernelId::kCount);

struct LaunchShape {
  std::uint32_t grid_x = 0;
  std::uint32_t grid_y = 1;
  std::uint32_t block = 0;         // threads of a block, in x
  std::uint32_t shared_bytes = 0;  // dynamic, in addition to the kernel's static shared memory

  // True for a capacity of 0. The driver refuses such grids, and there is nothing to do.
  bool empty() const { return grid_x == 0 || grid_y == 0; }
  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

struct KernelLaunch {
  KernelId kernel{};
  LaunchShape shape;
};

}  // namespace sluice::cuda
