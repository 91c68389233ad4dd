#include "device/cuda/attention_launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/cuda/kernels/attention_work.h"
#include "device/cuda/launch_shapes.h"

namespace sluice::cuda {
namespace {

constexpr std::int32_t kMaxHeadDim = 256;

// A kernel variant for heads of up to head_dim elements.
struct Variant {
  std::int32_t head_dim;
  std::int32_t blocks;  // of a multiprocessor, as in the kernel's __launch_bounds__
  KernelId bf16;
  KernelId f16;
};
constexpr Variant kVariants[] = {
    {64, 3, KernelId::kAttentionBf16D64, KernelId::kAttentionF16D64},
    {128, 2, KernelId::kAttentionBf16D128, KernelId::kAttentionF16D128},
    {kMaxHeadDim, 1, KernelId::kAttentionBf16D256, KernelId::kAttentionF16D256},
};

const Variant& variant_for(std::int32_t head_dim) {
  for (const Variant& variant : kVariants) {
    if (head_dim <= variant.head_dim) return variant;
  }
  return *std::rbegin(kVariants);
}

bool is_multiple(const void* address, std::uintptr_t of) {
  return reinterpret_cast<std::uintptr_t>(address) % of == 0;
}

// The reason why the kernel on tensor cores cannot run the op; empty if it can.
std::string obstacle(const AttentionParams& p, const GpuInfo& gpu) {
  const KvLayerView& kv = p.kv;
  if (kv.dtype != DType::kBF16 && kv.dtype != DType::kF16) {
    return fmt::format("keys and values are {}, not bf16 or f16", dtype_name(kv.dtype));
  }
  if (p.head_dim % 8 != 0) return fmt::format("head_dim {} is not a multiple of 8", p.head_dim);
  for (const std::int64_t stride : {kv.block_stride, kv.head_stride, kv.token_stride}) {
    if (stride % 8 != 0) return fmt::format("a KV stride of {} is not a multiple of 8", stride);
  }
  if (!is_multiple(kv.k_base, 16) || !is_multiple(kv.v_base, 16)) {
    return "keys or values are not at multiples of 16 bytes";
  }
  for (const TensorView& view : {p.q, p.out}) {
    if (view.strides[0] % 2 != 0 || !is_multiple(view.data, 8)) {
      return "rows of queries or of the output are at unaligned addresses";
    }
  }
  const int shared = kernel_info(variant_for(p.head_dim).bf16).shared_bytes;
  if (shared > gpu.shared_bytes) {
    return fmt::format("{} KiB of shared memory are needed for head_dim {}, the GPU has {} KiB",
                       shared / 1024, p.head_dim, gpu.shared_bytes / 1024);
  }
  return {};
}

}  // namespace

std::int32_t attention_blocks(const GpuInfo& gpu, std::int32_t head_dim) {
  const Variant& variant = variant_for(head_dim);
  // The part of a block's shared memory that the driver and the kernel's own variables take.
  constexpr int kMore = 2 << 10;
  const int fit = gpu.shared_bytes / (kernel_info(variant.bf16).shared_bytes + kMore);
  return gpu.multiprocessors * std::clamp(fit, 1, variant.blocks);
}

Status check_attention_blocks(const KernelSet& kernels, const GpuInfo& gpu) {
  for (const Variant& variant : kVariants) {
    if (kernel_info(variant.bf16).shared_bytes > gpu.shared_bytes) continue;
    const int wanted = attention_blocks(gpu, variant.head_dim) / gpu.multiprocessors;
    for (const KernelId kernel : {variant.bf16, variant.f16}) {
      RETURN_IF_ERROR(kernels.expect_blocks(kernel, kAttentionWarps * 32, wanted));
    }
  }
  return {};
}

Result<AttentionLaunch> launch_attention(const AttentionParams& p, const GpuInfo& gpu) {
  AttentionLaunch launch;
  ASSIGN_OR_RETURN(launch.shape, launch_shape(p));
  launch.why_plain = obstacle(p, gpu);
  if (!launch.why_plain.empty() || launch.shape.empty()) return launch;
  const Variant& variant = variant_for(p.head_dim);
  launch.kernel = p.kv.dtype == DType::kBF16 ? variant.bf16 : variant.f16;
  launch.shape = {static_cast<std::uint32_t>(attention_blocks(gpu, p.head_dim)), 1,
                  kAttentionWarps * 32,
                  static_cast<std::uint32_t>(kernel_info(launch.kernel).shared_bytes)};
  return launch;
}

}  // namespace sluice::cuda
