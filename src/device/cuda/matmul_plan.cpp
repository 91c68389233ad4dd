#include "device/cuda/matmul_plan.h"

#include <fmt/format.h>

#include <type_traits>

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

// The kernels of an op, from few rows to many.
struct Kernels {
  KernelId plain;
  KernelId stream8;
  KernelId stream16;
  KernelId stream16_narrow;
  KernelId tile64;
  KernelId tile128;
};
constexpr Kernels kProduct = {KernelId::kMatmul,         KernelId::kMatmul8,  KernelId::kMatmul16,
                              KernelId::kMatmul16Narrow, KernelId::kMatmul64, KernelId::kMatmul128};
// The two weights of an MLP are never few rows: no narrow kernel.
constexpr Kernels kGated = {KernelId::kGatedMatmul,   KernelId::kGatedMatmul8,
                            KernelId::kGatedMatmul16, KernelId::kGatedMatmul16,
                            KernelId::kGatedMatmul64, KernelId::kGatedMatmul128};

// Blocks that take so many rows of weights each; each segment starts a new one.
std::int64_t column_tiles(const MatmulParams& p, int columns) {
  std::int64_t tiles = 0;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    tiles += divide_up(p.segments[s].weight.dims[0], columns);
  }
  return tiles;
}
// Half of each weight.
std::int64_t column_tiles(const GatedMatmulParams& p, int columns) {
  return divide_up(p.gate.weight.dims[0], columns / 2);
}

template <class Params>
LaunchShape stream_shape(const Params& p, const StreamShape& shape) {
  return {static_cast<std::uint32_t>(column_tiles(p, shape.columns)), 1, kMatmulBlock, 0};
}

template <class Params>
LaunchShape tile_shape(const Params& p, const TileShape& shape) {
  return {static_cast<std::uint32_t>(divide_up(p.rows.capacity, shape.tokens)),
          static_cast<std::uint32_t>(column_tiles(p, shape.columns)), kMatmulBlock,
          static_cast<std::uint32_t>(shape.shared_bytes())};
}

// `p` of shapes that fit each other and tensor cores.
template <class Params>
Result<MatmulPlan> plan_fast(const Params& p, const Kernels& kernels, const MatmulChoice& choice) {
  if (!choice.deterministic && p.rows.capacity <= kStream8.tokens) {
    return MatmulPlan{kernels.stream8, stream_shape(p, kStream8)};
  }
  if (!choice.deterministic && p.rows.capacity <= kStream16.tokens) {
    // A block a multiprocessor has enough on its way from memory; a few idle ones cost less than
    // tokens read by twice as many blocks.
    const LaunchShape wide = stream_shape(p, kStream16);
    const bool fills = std::int64_t{8} * wide.grid_x >= std::int64_t{7} * choice.multiprocessors;
    if (fills || kernels.stream16_narrow == kernels.stream16) {
      return MatmulPlan{kernels.stream16, wide};
    }
    return MatmulPlan{kernels.stream16_narrow, stream_shape(p, kStream16Narrow)};
  }
  // The two give the same bits: the larger tile reads less, where it leaves no multiprocessor idle.
  const LaunchShape small = tile_shape(p, kTile64);
  const LaunchShape large = tile_shape(p, kTile128);
  if (small.grid_y > kMaxGridY) {
    return unsupported(fmt::format("matmul: {} rows of weights, at most {}",
                                   std::int64_t{small.grid_y} * kTile64.columns,
                                   kMaxGridY * kTile64.columns));
  }
  const std::int64_t blocks = std::int64_t{large.grid_x} * large.grid_y;
  if (p.rows.capacity <= kTile64.tokens || blocks < choice.multiprocessors) {
    // Gated, the activation in the same launch saves more than a library can where all the time goes
    // into reading weights once.
    const bool fused = std::is_same_v<Params, GatedMatmulParams> && small.grid_x == 1;
    return MatmulPlan{kernels.tile64, small, !fused};
  }
  return MatmulPlan{kernels.tile128, large, true};
}

}  // namespace

Result<MatmulPlan> plan_matmul(const MatmulParams& p, const MatmulChoice& choice) {
  ASSIGN_OR_RETURN(const LaunchShape plain, launch_shape(p));  // finds what contradicts itself
  if (plain.empty() || !suits_tensor_cores(p)) return MatmulPlan{kProduct.plain, plain};
  return plan_fast(p, kProduct, choice);
}

Result<MatmulPlan> plan_matmul(const GatedMatmulParams& p, const MatmulChoice& choice) {
  ASSIGN_OR_RETURN(const LaunchShape plain, launch_shape(p));
  if (plain.empty() || !suits_tensor_cores(p.product())) return MatmulPlan{kGated.plain, plain};
  return plan_fast(p, kGated, choice);
}

}  // namespace sluice::cuda
