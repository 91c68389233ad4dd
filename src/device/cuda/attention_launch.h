// Chooses the attention kernel of an op and its number of blocks of threads.
// Pure functions of shapes, types, addresses and the GPU; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "device/cuda/gpu.h"
#include "device/cuda/kernel_set.h"

namespace sluice::cuda {

struct AttentionLaunch {
  KernelId kernel = KernelId::kAttention;
  LaunchShape shape;
  std::string why_plain;  // why the plain kernel is used; empty if it is not
};

// The kernel on tensor cores (kernels/paged_attention.cu) supports keys and values of 16-bit
// floats, head sizes that are multiples of 8 up to 256, and rows at multiples of 16 bytes. The
// plain kernel (kernels/attention.cu) handles all other cases. Errors as launch_shape.
Result<AttentionLaunch> launch_attention(const AttentionParams& p, const GpuInfo& gpu);

// The number of blocks of that launch for this head_dim: as many as the GPU runs at once.
std::int32_t attention_blocks(const GpuInfo& gpu, std::int32_t head_dim);

// Warns if fewer blocks fit.
Status check_attention_blocks(const KernelSet& kernels, const GpuInfo& gpu);

}  // namespace sluice::cuda
