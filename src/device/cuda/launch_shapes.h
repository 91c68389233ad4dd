// Chooses the kernel of an op and its number of threads from the op's capacities alone; kernels
// read the real sizes on the device. Unsupported ops are refused here, before anything is
// submitted.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/cuda/kernel_launch.h"
#include "device/op_params.h"

namespace sluice::cuda {

inline constexpr std::int64_t kMaxGridY = 65535;  // the driver's

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// The launch of an op that is one kernel. kUnsupported for a head_dim above 256, a dtype that is
// not a float, or more blocks than a grid may have; kInternal for inconsistent shapes.
Result<KernelLaunch> plan_launch(const EmbedParams& p);
Result<KernelLaunch> plan_launch(const RmsNormParams& p);
Result<KernelLaunch> plan_launch(const LayerNormParams& p);
Result<KernelLaunch> plan_launch(const RopeWriteKvParams& p);
Result<KernelLaunch> plan_launch(const GatedActivationParams& p);
Result<KernelLaunch> plan_launch(const GatherRowsParams& p);
Result<KernelLaunch> plan_launch(const CopyBlocksParams& p);
Result<KernelLaunch> plan_launch(const SampleParams& p);

// The shapes of the plain kernels of ops that have several (matmul_plan.h, attention_launch.h).
// Errors as above.
Result<LaunchShape> launch_shape(const MatmulParams& p);
Result<LaunchShape> launch_shape(const GatedMatmulParams& p);
Result<LaunchShape> launch_shape(const AttentionParams& p);

}  // namespace sluice::cuda
