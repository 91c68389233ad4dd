#include "device/cuda/launch_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "device/cuda/kernels/norm_shape.h"

namespace sluice::cuda {
namespace {

// As in kernels/: change both.
constexpr std::int64_t kPlainTile = 64;
constexpr std::uint32_t kPlainThreads = 256;
constexpr std::int32_t kMaxHeadDim = 256;
constexpr std::int64_t kCopyBytes = 16;  // of a thread
constexpr std::uint32_t kSampleThreads = 512;

constexpr std::uint32_t kRowThreads = 256;
constexpr std::uint32_t kRopeThreads = 128;
constexpr std::uint32_t kWarp = 32;
constexpr std::int64_t kMaxGridX = std::numeric_limits<std::int32_t>::max();

Result<LaunchShape> make_shape(std::string_view op, std::int64_t x, std::int64_t y,
                               std::uint32_t block) {
  if (x < 0 || y < 0) return internal_error(fmt::format("{}: a grid of {} x {}", op, x, y));
  if (x > kMaxGridX || y > kMaxGridY) {
    return unsupported(fmt::format("{}: a grid of {} x {} blocks, at most {} x {}", op, x, y,
                                   kMaxGridX, kMaxGridY));
  }
  return LaunchShape{static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), block, 0};
}

Status check_floats(std::string_view op, std::initializer_list<DType> dtypes) {
  for (const DType dtype : dtypes) {
    if (is_float(dtype)) continue;
    return unsupported(
        fmt::format("{}: dtype {}, expected f32, f16 or bf16", op, dtype_name(dtype)));
  }
  return {};
}

Status check_weight(std::string_view op, const MatmulSegment& segment) {
  if (segment.order != nullptr) {
    return internal_error(fmt::format("{}: a weight whose columns are in another order", op));
  }
  if (segment.weight.dtype != DType::kF8E4M3) return check_floats(op, {segment.weight.dtype});
  const BlockScales& scales = segment.scales;
  if (scales.values != nullptr && scales.block_rows > 0 && scales.block_cols > 0) return {};
  return internal_error(fmt::format("{}: a weight in FP8 without scales", op));
}

Status check_heads(std::string_view op, std::int32_t heads, std::int32_t kv_heads,
                   std::int32_t head_dim) {
  if (kv_heads <= 0 || heads <= 0 || heads % kv_heads != 0) {
    return internal_error(fmt::format("{}: {} heads over {} KV heads", op, heads, kv_heads));
  }
  if (head_dim <= 0 || head_dim > kMaxHeadDim) {
    return unsupported(fmt::format("{}: head_dim {}, this backend takes 1 to {}; use --device cpu",
                                   op, head_dim, kMaxHeadDim));
  }
  return {};
}

Status check_equal(std::string_view op, std::string_view what, std::int64_t got,
                   std::int64_t expected) {
  if (got == expected) return {};
  return internal_error(fmt::format("{}: {} is {}, expected {}", op, what, got, expected));
}

// Enough for one round of the row, in whole warps.
std::uint32_t norm_threads(std::int64_t hidden) {
  const std::int64_t wanted = divide_up(divide_up(hidden, kNormElements), kWarp) * kWarp;
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(wanted, kWarp, std::int64_t{kMaxNormThreads}));
}

Result<KernelLaunch> with_kernel(KernelId kernel, Result<LaunchShape> shape) {
  if (!shape) return std::move(shape).error();
  return KernelLaunch{kernel, *shape};
}

// Both kinds of norm.
template <class Params>
Result<LaunchShape> norm_shape(const Params& p) {
  constexpr std::string_view kOp = Params::kName;
  RETURN_IF_ERROR(check_floats(kOp, {p.residual.dtype, p.weight.dtype, p.out.dtype}));
  const std::int64_t hidden = p.residual.dims[1];
  if (!p.add.empty()) {
    RETURN_IF_ERROR(check_floats(kOp, {p.add.dtype}));
    RETURN_IF_ERROR(check_equal(kOp, "the width of add", p.add.dims[1], hidden));
  }
  RETURN_IF_ERROR(check_equal(kOp, "the length of weight", p.weight.dims[0], hidden));
  RETURN_IF_ERROR(check_equal(kOp, "the width of out", p.out.dims[1], hidden));
  return make_shape(kOp, p.rows.capacity, 1, norm_threads(hidden));
}

}  // namespace

Result<KernelLaunch> plan_launch(const EmbedParams& p) {
  RETURN_IF_ERROR(check_floats("embed", {p.table.dtype, p.out.dtype}));
  RETURN_IF_ERROR(check_equal("embed", "the width of out", p.out.dims[1], p.table.dims[1]));
  return with_kernel(KernelId::kEmbed, make_shape("embed", p.rows.capacity, 1, kRowThreads));
}

Result<KernelLaunch> plan_launch(const RmsNormParams& p) {
  return with_kernel(KernelId::kRmsNorm, norm_shape(p));
}

Result<KernelLaunch> plan_launch(const LayerNormParams& p) {
  if (!p.bias.empty()) {
    RETURN_IF_ERROR(check_floats("layer_norm", {p.bias.dtype}));
    RETURN_IF_ERROR(
        check_equal("layer_norm", "the length of bias", p.bias.dims[0], p.residual.dims[1]));
  }
  return with_kernel(KernelId::kLayerNorm, norm_shape(p));
}

Result<LaunchShape> launch_shape(const MatmulParams& p) {
  if (p.num_segments < 1 || p.num_segments > MatmulParams::kMaxSegments) {
    return internal_error(fmt::format("matmul: {} segments, expected 1 to {}", p.num_segments,
                                      MatmulParams::kMaxSegments));
  }
  RETURN_IF_ERROR(check_floats("matmul", {p.x.dtype, p.out.dtype}));
  std::int64_t tiles = 0;
  std::int64_t columns = 0;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const MatmulSegment& segment = p.segments[s];
    RETURN_IF_ERROR(check_weight("matmul", segment));
    RETURN_IF_ERROR(
        check_equal("matmul", "the depth of a weight", segment.weight.dims[1], p.x.dims[1]));
    if (!segment.bias.empty()) {
      RETURN_IF_ERROR(check_floats("matmul", {segment.bias.dtype}));
      RETURN_IF_ERROR(check_equal("matmul", "the length of a bias", segment.bias.dims[0],
                                  segment.weight.dims[0]));
    }
    columns += segment.weight.dims[0];
    tiles += divide_up(segment.weight.dims[0], kPlainTile);
  }
  RETURN_IF_ERROR(check_equal("matmul", "the width of out", p.out.dims[1], columns));
  return make_shape("matmul", tiles, divide_up(p.rows.capacity, kPlainTile), kPlainThreads);
}

Result<KernelLaunch> plan_launch(const RopeWriteKvParams& p) {
  constexpr std::string_view kOp = "rope_write_kv";
  RETURN_IF_ERROR(check_heads(kOp, p.num_heads, p.num_kv_heads, p.head_dim));
  RETURN_IF_ERROR(check_floats(kOp, {p.qkv.dtype, p.kv.dtype}));
  for (const TensorView& norm : {p.q_norm, p.k_norm}) {
    if (norm.empty()) continue;
    RETURN_IF_ERROR(check_floats(kOp, {norm.dtype}));
    RETURN_IF_ERROR(check_equal(kOp, "the length of a norm", norm.dims[0], p.head_dim));
  }
  if (p.rotary_dim < 0 || p.rotary_dim % 2 != 0 || p.rotary_dim > p.head_dim) {
    return internal_error(
        fmt::format("{}: rotary_dim {} of head_dim {}, expected an even number "
                    "up to it",
                    kOp, p.rotary_dim, p.head_dim));
  }
  const std::int64_t heads = std::int64_t{p.num_heads} + 2 * std::int64_t{p.num_kv_heads};
  RETURN_IF_ERROR(check_equal(kOp, "the width of qkv", p.qkv.dims[1], heads * p.head_dim));
  return with_kernel(KernelId::kRopeWriteKv, make_shape(kOp, p.rows.capacity, heads, kRopeThreads));
}

Result<LaunchShape> launch_shape(const AttentionParams& p) {
  RETURN_IF_ERROR(check_heads("attention", p.num_heads, p.num_kv_heads, p.head_dim));
  RETURN_IF_ERROR(check_floats("attention", {p.q.dtype, p.kv.dtype, p.out.dtype}));
  const std::int64_t width = std::int64_t{p.num_heads} * p.head_dim;
  RETURN_IF_ERROR(check_equal("attention", "the width of out", p.out.dims[1], width));
  if (p.q.dims[1] < width || p.q.dims[0] != p.out.dims[0]) {
    return internal_error(fmt::format("attention: q of {} x {}, out of {} x {}", p.q.dims[0],
                                      p.q.dims[1], p.out.dims[0], p.out.dims[1]));
  }
  return make_shape("attention", p.q.dims[0], p.num_heads, kWarp);
}

Result<KernelLaunch> plan_launch(const GatedActivationParams& p) {
  constexpr std::string_view kOp = "gated_activation";
  RETURN_IF_ERROR(check_floats(kOp, {p.gate_up.dtype, p.out.dtype}));
  RETURN_IF_ERROR(check_equal(kOp, "the width of gate_up", p.gate_up.dims[1], 2 * p.out.dims[1]));
  return with_kernel(KernelId::kGatedActivation, make_shape(kOp, p.rows.capacity, 1, kRowThreads));
}

Result<LaunchShape> launch_shape(const GatedMatmulParams& p) {
  RETURN_IF_ERROR(launch_shape(p.product()));
  RETURN_IF_ERROR(plan_launch(p.activated()));
  RETURN_IF_ERROR(
      check_equal("gated_matmul", "the width of up", p.up.weight.dims[0], p.gate.weight.dims[0]));
  return make_shape("gated_matmul", divide_up(p.out.dims[1], kPlainTile / 2),
                    divide_up(p.rows.capacity, kPlainTile), kPlainThreads);
}

Result<KernelLaunch> plan_launch(const GatherRowsParams& p) {
  RETURN_IF_ERROR(check_floats("gather_rows", {p.in.dtype, p.out.dtype}));
  RETURN_IF_ERROR(check_equal("gather_rows", "the width of out", p.out.dims[1], p.in.dims[1]));
  return with_kernel(KernelId::kGatherRows,
                     make_shape("gather_rows", p.rows.capacity, 1, kRowThreads));
}

Result<KernelLaunch> plan_launch(const CopyBlocksParams& p) {
  if (p.rows.capacity == 0) return KernelLaunch{KernelId::kCopyBlocks, {0, 1, kRowThreads, 0}};
  return with_kernel(KernelId::kCopyBlocks,
                     make_shape("copy_blocks", divide_up(p.block_bytes, kCopyBytes * kRowThreads),
                                1, kRowThreads));
}

Result<KernelLaunch> plan_launch(const SampleParams& p) {
  constexpr std::string_view kOp = "sample";
  if (p.logits.dtype != DType::kF32) {
    return unsupported(
        fmt::format("{}: logits of dtype {}, expected f32", kOp, dtype_name(p.logits.dtype)));
  }
  if (p.logits.dims[1] < 1 || p.logits.dims[1] > kMaxGridX) {
    return internal_error(fmt::format("{}: a vocabulary of {}", kOp, p.logits.dims[1]));
  }
  return with_kernel(KernelId::kSample, make_shape(kOp, p.rows.capacity, 1, kSampleThreads));
}

}  // namespace sluice::cuda
