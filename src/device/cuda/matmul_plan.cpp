#include "device/cuda/matmul_plan.h"

#include <fmt/format.h>

#include <bit>
#include <type_traits>

#include "base/check.h"
#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/launch_shapes.h"

namespace sluice::cuda {
namespace {

bool is_aligned(const TensorView& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.strides[0] % 8 == 0;
}

bool suits_tensor_cores(const TensorView& x) {
  const bool halves = x.dtype == DType::kBF16 || x.dtype == DType::kF16;
  return halves && x.dims[1] % 8 == 0 && is_aligned(x);
}

bool suits_tensor_cores(const MatmulParams& p) {
  if (!suits_tensor_cores(p.x)) return false;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const TensorView& weight = p.segments[s].weight;
    if (weight.dtype != p.x.dtype || !is_aligned(weight)) return false;
  }
  return true;
}

// Whether all weights are in FP8 with blocks of scales that end at a boundary of pieces of K: a
// block is a power of two of pieces long, or as long as K.
bool suits_fp8_kernels(const MatmulParams& p) {
  constexpr std::int32_t kPiece = StreamShape::kSlabBytes;  // codes
  static_assert(kPiece == TileShape::kDepth);
  if (!suits_tensor_cores(p.x) || p.x.dims[1] % 16 != 0) return false;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const TensorView& weight = p.segments[s].weight;
    if (weight.dtype != DType::kF8E4M3 || !is_aligned(weight) || weight.strides[0] % 16 != 0) {
      return false;
    }
    const std::int32_t block = p.segments[s].scales.block_cols;
    const bool whole = block >= p.x.dims[1];
    if (!whole && (block % kPiece != 0 || !std::has_single_bit(static_cast<unsigned>(block)))) {
      return false;
    }
  }
  return true;
}

// The kernels for one type of weights and how they split their work.
struct Cuts {
  StreamShape stream8;
  StreamShape stream16;
  StreamShape stream16_narrow;
  TileShape tile64;
  TileShape tile128;
};
constexpr Cuts kHalves = {kStream8, kStream16, kStream16Narrow, kTile64, kTile128};
constexpr Cuts kFp8 = {kFp8Stream8, kFp8Stream16, kFp8Stream16Narrow, kFp8Tile64, kFp8Tile128};

// The kernels of an op, from few rows to many.
struct Kernels {
  KernelId plain;
  KernelId stream8;
  KernelId stream16;
  KernelId stream16_narrow;
  KernelId tile64;
  KernelId tile128;
  const Cuts& cuts = kHalves;
};
constexpr Kernels kProduct = {KernelId::kMatmul,         KernelId::kMatmul8,  KernelId::kMatmul16,
                              KernelId::kMatmul16Narrow, KernelId::kMatmul64, KernelId::kMatmul128};
// The two weights of an MLP have many rows, so there is no narrow kernel.
constexpr Kernels kGated = {KernelId::kGatedMatmul,   KernelId::kGatedMatmul8,
                            KernelId::kGatedMatmul16, KernelId::kGatedMatmul16,
                            KernelId::kGatedMatmul64, KernelId::kGatedMatmul128};

constexpr Kernels kProductFp8 = {KernelId::kMatmul,
                                 KernelId::kMatmulFp8By8,
                                 KernelId::kMatmulFp8By16,
                                 KernelId::kMatmulFp8By16Narrow,
                                 KernelId::kMatmulFp8By64,
                                 KernelId::kMatmulFp8By128,
                                 kFp8};
constexpr Kernels kGatedFp8 = {KernelId::kGatedMatmul,
                               KernelId::kGatedMatmulFp8By8,
                               KernelId::kGatedMatmulFp8By16,
                               KernelId::kGatedMatmulFp8By16,
                               KernelId::kGatedMatmulFp8By64,
                               KernelId::kGatedMatmulFp8By128,
                               kFp8};

// The number of blocks of threads if each takes `columns` rows of weights. Each segment starts a
// new block.
std::int64_t column_tiles(const MatmulParams& p, int columns) {
  std::int64_t tiles = 0;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    tiles += divide_up(p.segments[s].weight.dims[0], columns);
  }
  return tiles;
}
// A block takes half of its rows from each weight.
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

// REQUIRES: the shapes of `p` fit each other and tensor cores.
template <class Params>
Result<MatmulPlan> plan_fast(const Params& p, const Kernels& kernels, const MatmulChoice& choice) {
  const Cuts& cuts = kernels.cuts;
  if (!choice.deterministic && p.rows.capacity <= cuts.stream8.tokens) {
    return MatmulPlan{kernels.stream8, stream_shape(p, cuts.stream8)};
  }
  if (!choice.deterministic && p.rows.capacity <= cuts.stream16.tokens) {
    // One block per multiprocessor keeps enough bytes in flight from memory. A few idle
    // multiprocessors cost less than twice as many blocks that read the tokens.
    const LaunchShape wide = stream_shape(p, cuts.stream16);
    const bool fills = std::int64_t{8} * wide.grid_x >= std::int64_t{7} * choice.multiprocessors;
    if (fills || kernels.stream16_narrow == kernels.stream16) {
      return MatmulPlan{kernels.stream16, wide};
    }
    return MatmulPlan{kernels.stream16_narrow, stream_shape(p, cuts.stream16_narrow)};
  }
  // Both tiles give the same bits. The larger tile reads less, if it leaves no multiprocessor idle.
  const LaunchShape small = tile_shape(p, cuts.tile64);
  const LaunchShape large = tile_shape(p, cuts.tile128);
  if (small.grid_y > kMaxGridY) {
    return unsupported(fmt::format("matmul: {} rows of weights, at most {}",
                                   std::int64_t{small.grid_y} * cuts.tile64.columns,
                                   kMaxGridY * cuts.tile64.columns));
  }
  const std::int64_t blocks = std::int64_t{large.grid_x} * large.grid_y;
  if (p.rows.capacity <= cuts.tile64.tokens || blocks < choice.multiprocessors) {
    // If the time is dominated by reading weights once, fusing the activation saves more than
    // cuBLASLt does.
    const bool fused = std::is_same_v<Params, GatedMatmulParams> && small.grid_x == 1;
    return MatmulPlan{kernels.tile64, small, !fused};
  }
  return MatmulPlan{kernels.tile128, large, true};
}

}  // namespace

Result<MatmulPlan> plan_matmul(const MatmulParams& p, const MatmulChoice& choice) {
  ASSIGN_OR_RETURN(const LaunchShape plain, launch_shape(p));  // checks the shapes
  if (!plain.empty() && suits_fp8_kernels(p)) return plan_fast(p, kProductFp8, choice);
  if (plain.empty() || !suits_tensor_cores(p)) return MatmulPlan{kProduct.plain, plain};
  return plan_fast(p, kProduct, choice);
}

Result<MatmulPlan> plan_matmul(const GatedMatmulParams& p, const MatmulChoice& choice) {
  ASSIGN_OR_RETURN(const LaunchShape plain, launch_shape(p));
  const bool alike = p.gate.scales.block_cols == p.up.scales.block_cols;
  if (!plain.empty() && alike && suits_fp8_kernels(p.product())) {
    return plan_fast(p, kGatedFp8, choice);
  }
  if (plain.empty() || !suits_tensor_cores(p.product())) return MatmulPlan{kGated.plain, plain};
  return plan_fast(p, kGated, choice);
}

Status check_matmul_blocks(const KernelSet& kernels, const GpuInfo& gpu) {
  constexpr int kBlocks = 2;  // as in their __launch_bounds__
  for (const Kernels* of : {&kProduct, &kGated, &kProductFp8, &kGatedFp8}) {
    for (const KernelId id :
         {of->stream8, of->stream16, of->stream16_narrow, of->tile64, of->tile128}) {
      if (kernel_info(id).shared_bytes > gpu.shared_bytes) continue;
      RETURN_IF_ERROR(kernels.expect_blocks(id, kMatmulBlock, kBlocks));
    }
  }
  return {};
}

std::int32_t row_multiple(KernelId kernel) {
  constexpr std::int32_t kPlainRows = 4;  // per thread in kernels/matmul.cu
  for (const Kernels* of : {&kProduct, &kGated, &kProductFp8, &kGatedFp8}) {
    if (kernel == of->plain) return kPlainRows;
    if (kernel == of->stream8) return of->cuts.stream8.tokens;
    if (kernel == of->stream16_narrow) return of->cuts.stream16_narrow.tokens;
    if (kernel == of->stream16) return of->cuts.stream16.tokens;
    if (kernel == of->tile64) return of->cuts.tile64.tokens_of_warp();
    if (kernel == of->tile128) return of->cuts.tile128.tokens_of_warp();
  }
  CHECK(!"no matmul kernel");
  return 0;
}

}  // namespace sluice::cuda
