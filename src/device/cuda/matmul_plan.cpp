#include "device/cuda/matmul_plan.h"

#include <fmt/format.h>

#include "device/cuda/kernels/matmul_tiles.h"

namespace sluice::cuda {
namespace {

bool is_aligned(const TensorView& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.strides[0] % 8 == 0;
}

bool suits_tensor_cores(const MatmulParams& p) {
  const DType type = p.x.dtype;
  if (type != DType::kBF16 && type != DType::kF16) return false;
  if (p.x.dims[1] % 8 != 0 || !is_aligned(p.x)) return false;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const TensorView& weight = p.segments[s].weight;
    if (weight.dtype != type || !is_aligned(weight)) return false;
  }
  return true;
}

// Of so many columns; each segment starts a new one.
std::int64_t column_tiles(const MatmulParams& p, int columns) {
  std::int64_t tiles = 0;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    tiles += divide_up(p.segments[s].weight.dims[0], columns);
  }
  return tiles;
}

LaunchShape stream_shape(const MatmulParams& p, const StreamShape& shape) {
  return {static_cast<std::uint32_t>(column_tiles(p, shape.columns)), 1, kMatmulBlock, 0};
}

LaunchShape tile_shape(const MatmulParams& p, const TileShape& shape) {
  return {static_cast<std::uint32_t>(divide_up(p.rows.capacity, shape.tokens)),
          static_cast<std::uint32_t>(column_tiles(p, shape.columns)), kMatmulBlock,
          static_cast<std::uint32_t>(shape.shared_bytes())};
}

}  // namespace

Result<MatmulPlan> plan_matmul(const MatmulParams& p, const MatmulChoice& choice) {
  ASSIGN_OR_RETURN(const LaunchShape plain, launch_shape(p));  // finds what contradicts itself
  if (plain.empty() || !suits_tensor_cores(p)) return MatmulPlan{KernelId::kMatmul, plain};
  if (!choice.deterministic && p.rows.capacity <= kStream8.tokens) {
    return MatmulPlan{KernelId::kMatmul8, stream_shape(p, kStream8)};
  }
  if (!choice.deterministic && p.rows.capacity <= kStream16.tokens) {
    return MatmulPlan{KernelId::kMatmul16, stream_shape(p, kStream16)};
  }
  // The two give the same bits: the larger tile reads less, where it leaves no multiprocessor idle.
  const LaunchShape small = tile_shape(p, kTile64);
  const LaunchShape large = tile_shape(p, kTile128);
  if (small.grid_y > kMaxGridY) {
    return unsupported(fmt::format("matmul: {} columns of weights, at most {}", p.out.dims[1],
                                   kMaxGridY * kTile64.columns));
  }
  const std::int64_t blocks = std::int64_t{large.grid_x} * large.grid_y;
  if (p.rows.capacity <= kTile64.tokens || blocks < choice.multiprocessors) {
    return MatmulPlan{KernelId::kMatmul64, small, true};
  }
  return MatmulPlan{KernelId::kMatmul128, large, true};
}

}  // namespace sluice::cuda
