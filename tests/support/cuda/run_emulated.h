// Runs a kernel of this build on the host (emulated_gpu.h). Owner: tests. Threads: one.
#pragma once

#include <functional>

#include "device/cuda/kernel_set.h"
#include "device/cuda/launch_shapes.h"

namespace sluice::cuda {

namespace emulation {

// Runs `body` as each thread of each block. False when one trapped.
bool run_grid(const LaunchShape& shape, std::function<void()> body);

}  // namespace emulation

// False when the kernel trapped; what it wrote before stays. CHECKs that no barrier is left by
// some threads only.
bool run_emulated(KernelId id, const LaunchShape& shape, const void* params);

}  // namespace sluice::cuda
