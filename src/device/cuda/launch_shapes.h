// How many threads an op's kernel gets, from its capacities alone (the real sizes are read on the
// device), and what the kernels cannot do, found before anything is submitted.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/op_params.h"

namespace sluice::cuda {

inline constexpr std::int64_t kMaxGridY = 65535;  // the driver's

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

struct LaunchShape {
  std::uint32_t grid_x = 0;
  std::uint32_t grid_y = 1;
  std::uint32_t block = 0;         // threads of a block, in x
  std::uint32_t shared_bytes = 0;  // beside what a kernel declares

  // A capacity of nothing: the driver refuses such grids, and there is nothing to do.
  bool empty() const { return grid_x == 0 || grid_y == 0; }
  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

// kUnsupported for a head_dim over 256, a dtype that is no float, or more blocks than a grid has;
// kInternal for shapes that contradict each other.
Result<LaunchShape> launch_shape(const EmbedParams& p);
Result<LaunchShape> launch_shape(const RmsNormParams& p);
Result<LaunchShape> launch_shape(const LayerNormParams& p);
Result<LaunchShape> launch_shape(const MatmulParams& p);
Result<LaunchShape> launch_shape(const RopeWriteKvParams& p);
Result<LaunchShape> launch_shape(const AttentionParams& p);
Result<LaunchShape> launch_shape(const GatedActivationParams& p);
Result<LaunchShape> launch_shape(const GatedMatmulParams& p);
Result<LaunchShape> launch_shape(const GatherRowsParams& p);
Result<LaunchShape> launch_shape(const CopyBlocksParams& p);
Result<LaunchShape> launch_shape(const SampleParams& p);

}  // namespace sluice::cuda
