// Chooses the kernel of a matrix product and its launch shape, from capacities, types and addresses
// alone (the kernel reads the real number of rows on the device). Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/cuda/kernel_set.h"

namespace sluice::cuda {

struct MatmulChoice {
  // Uses one order along K for every number of rows, so that a row's bits do not depend on the
  // step's capacity. Slower for few rows (docs/gpu.md).
  bool deterministic = false;
  int multiprocessors = 1;
};

struct MatmulPlan {
  KernelId kernel = KernelId::kMatmul;
  LaunchShape shape;
  bool many_rows = false;  // cuBLASLt may be faster, if it supports the weights
};

// The kernels of gated products apply the activation themselves; cuBLASLt needs a second launch for
// it. The kernels on tensor cores support x and weights of one 16-bit type with rows at multiples
// of 16 bytes, and FP8 weights. The plain kernel handles all other cases. Errors as launch_shape.
Result<MatmulPlan> plan_matmul(const MatmulParams& p, const MatmulChoice& choice);
Result<MatmulPlan> plan_matmul(const GatedMatmulParams& p, const MatmulChoice& choice);

// Warns if fewer blocks fit a multiprocessor than the kernels are designed for.
Status check_matmul_blocks(const KernelSet& kernels, const GpuInfo& gpu);

// A matmul kernel computes its rows in multiples of this number.
std::int32_t row_multiple(KernelId kernel);

}  // namespace sluice::cuda
