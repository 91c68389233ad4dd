// Which kernels make LoRA's two ops, and in how many threads, from capacities alone; what they
// cannot do is found before anything is submitted.
// Pure functions; any thread.
#pragma once

#include "base/result.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/launch_shapes.h"
#include "device/op_params.h"

namespace sluice::cuda {

struct LoraLaunch {
  KernelId kernel = KernelId::kLoraShrink;
  LaunchShape shape;
};

// kUnsupported for a dtype that is no float or more segments than a grid has rows; kInternal for
// sizes that contradict each other.
Result<LoraLaunch> launch_lora(const LoraShrinkParams& p);
Result<LoraLaunch> launch_lora(const LoraExpandParams& p);

}  // namespace sluice::cuda
