// Chooses the kernels of LoRA's two ops and their number of threads from capacities alone.
// Unsupported ops are refused before anything is submitted.
// Pure functions; any thread.
#pragma once

#include "base/result.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/launch_shapes.h"
#include "device/op_params.h"

namespace sluice::cuda {

// kUnsupported for a dtype that is not a float or more segments than a grid has rows; kInternal for
// inconsistent sizes.
Result<KernelLaunch> plan_launch(const LoraShrinkParams& p);
Result<KernelLaunch> plan_launch(const LoraExpandParams& p);

}  // namespace sluice::cuda
