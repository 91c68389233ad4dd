// Which attention kernel an op takes, and with how many blocks of threads.
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
  std::string why_plain;  // why the plain kernel is taken; empty where it is not
};

// Tensor cores (kernels/paged_attention.cu) take keys and values of 16-bit floats, heads of
// multiples of 8 up to 256, and rows that lie at multiples of 16 bytes; the plain kernel
// (kernels/attention.cu) takes the rest. Errors as launch_shape.
Result<AttentionLaunch> launch_attention(const AttentionParams& p, const GpuInfo& gpu);

// The blocks of that launch for this head_dim: as many as the GPU holds at once.
std::int32_t attention_blocks(const GpuInfo& gpu, std::int32_t head_dim);

// Warns where fewer fit than that.
Status check_attention_blocks(const KernelSet& kernels, const GpuInfo& gpu);

}  // namespace sluice::cuda
