// Which kernel makes a matrix product, and with how many threads, from capacities, types and
// addresses alone (the real number of rows is read on the device).
// Pure; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/cuda/kernel_set.h"

namespace sluice::cuda {

struct MatmulChoice {
  // One order along K for every number of rows: a row's bits do not depend on how many others a
  // step has room for. Costs speed where rows are few (docs/gpu.md).
  bool deterministic = false;
  int multiprocessors = 1;
};

struct MatmulPlan {
  KernelId kernel = KernelId::kMatmul;
  LaunchShape shape;
  bool many_rows = false;  // a library may do better, where one takes such weights
};

// Gated products go to kernels that apply the activation themselves; a library needs a second
// launch for it. Tensor cores take x and weights of one 16-bit type whose rows lie at multiples of
// 16 bytes, or weights in FP8; the plain kernel takes the rest. Errors as launch_shape.
Result<MatmulPlan> plan_matmul(const MatmulParams& p, const MatmulChoice& choice);
Result<MatmulPlan> plan_matmul(const GatedMatmulParams& p, const MatmulChoice& choice);

// Warns where fewer blocks fit a multiprocessor than the kernels are made for.
Status check_matmul_blocks(const KernelSet& kernels, const GpuInfo& gpu);

// A matmul kernel computes its rows in multiples of so many.
std::int32_t row_multiple(KernelId kernel);

}  // namespace sluice::cuda
