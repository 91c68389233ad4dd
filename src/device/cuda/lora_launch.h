// Which kernels make LoRA's two ops, and in how many threads, from capacities alone; what they
// cannot do is found before anything is submitted.
// Pure functions; any thread.
#pragma once

#include "base/result.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/launch_shapes.h"
#include "device/op_params.h"

namespace sluice::cuda {

// kUnsupported for a dtype that is no float or more segments than a grid has rows; kInternal for
// sizes that contradict each other.
Result<KernelLaunch> plan_launch(const LoraShrinkParams& p);
Result<KernelLaunch> plan_launch(const LoraExpandParams& p);

}  // namespace sluice::cuda
