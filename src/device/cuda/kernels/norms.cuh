// RMS norm and layer norm of a row by one block of threads.
//
// A thread owns four neighbouring elements of every 4 * blockDim.x, and adds them up in ascending
// order; then the block adds the threads' sums. So the order is fixed by the width alone (the host
// chooses the block's size by it, launch_shapes.cpp), and both forms below give the same bits:
//   in registers: F32 inputs at multiples of 16 bytes, up to kMaxNormRounds rounds. All loads,
//   including the weight's, start before the first sum; the row is read once.
//   plain: everything else. Element by element, and the row is read once for each sum.
#pragma once

#include "device/cuda/kernels/elements.cuh"
#include "device/cuda/kernels/norm_shape.h"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {

struct alignas(16) FourFloats {
  float of[4];
};
struct alignas(8) FourHalves {
  unsigned of[2];
};

// The thread's first element of a round.
__device__ inline std::int64_t norm_element(int round) {
  return kNormElements *
         (static_cast<std::int64_t>(round) * blockDim.x + static_cast<std::int64_t>(threadIdx.x));
}

__device__ inline std::int64_t norm_rounds(std::int64_t width) {
  const std::int64_t of_round = static_cast<std::int64_t>(kNormElements) * blockDim.x;
  return (width + of_round - 1) / of_round;
}

__device__ inline bool is_multiple_of(const void* data, std::int64_t stride, DType dtype,
                                      std::uintptr_t bytes) {
  const std::int64_t size = dtype == DType::kF32 ? 4 : 2;
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 &&
         static_cast<std::uintptr_t>(stride * size) % bytes == 0;
}

// Whether a tensor that may be absent can be read four floats at a time.
__device__ inline bool has_four_floats(const TensorView& tensor) {
  if (tensor.data == nullptr) return true;
  const std::int64_t stride = tensor.rank == 2 ? tensor.strides[0] : kNormElements;
  return tensor.dtype == DType::kF32 && is_multiple_of(tensor.data, stride, DType::kF32, 16);
}

template <class Params>
__device__ bool fits_registers(const Params& p) {
  return p.residual.dims[1] % kNormElements == 0 &&
         norm_rounds(p.residual.dims[1]) <= kMaxNormRounds && has_four_floats(p.residual) &&
         has_four_floats(p.add) && has_four_floats(p.weight) &&
         is_multiple_of(p.out.data, p.out.strides[0], p.out.dtype,
                        p.out.dtype == DType::kF32 ? 16 : 8);
}

// Loads the thread's elements; zeros beyond the row's end.
template <int kRounds>
__device__ void load_floats(float (&to)[kRounds][4], const float* from, std::int64_t width) {
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    FourFloats four = {};
    if (norm_element(r) < width) {
      four = *reinterpret_cast<const FourFloats*>(from + norm_element(r));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) to[r][e] = four.of[e];
  }
}

template <DType kOut>
__device__ void store_four(const TensorView& out, std::int64_t row, std::int64_t column,
                           const float (&values)[4]) {
  const std::int64_t index = row * out.strides[0] + column;
  if constexpr (kOut == DType::kF32) {
    *reinterpret_cast<FourFloats*>(static_cast<float*>(out.data) +
                                   index) = {{values[0], values[1], values[2], values[3]}};
  } else {
    *reinterpret_cast<FourHalves*>(static_cast<std::uint16_t*>(out.data) + index) = {
        {pack<kOut>(values[0], values[1]), pack<kOut>(values[2], values[3])}};
  }
}

__device__ inline const float* floats_of_row(const TensorView& matrix, std::int64_t row) {
  return static_cast<const float*>(matrix.data) + row * matrix.strides[0];
}

// x = residual + add; stored back unless `add` is empty.
template <int kRounds, class Params>
__device__ void add_residual(const Params& p, std::int32_t row, std::int64_t width,
                             const float (&add)[kRounds][4], float (&x)[kRounds][4]) {
  if (p.add.data == nullptr) return;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int e = 0; e < 4; ++e) x[r][e] += add[r][e];
    if (norm_element(r) < width) store_four<DType::kF32>(p.residual, row, norm_element(r), x[r]);
  }
}

template <DType kOut, int kRounds>
__device__ void norm_in_registers(const RmsNormParams& p, std::int32_t row, float* partial) {
  const std::int64_t width = p.residual.dims[1];
  float x[kRounds][4];
  float add[kRounds][4] = {};
  float weight[kRounds][4];
  load_floats(x, floats_of_row(p.residual, row), width);
  if (p.add.data != nullptr) load_floats(add, floats_of_row(p.add, row), width);
  load_floats(weight, static_cast<const float*>(p.weight.data), width);
  add_residual(p, row, width, add, x);
  float sum = 0.0F;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum = fmaf(x[r][e], x[r][e], sum);
  }
  sum = block_sum(sum, partial);
  const float scale = 1.0F / sqrtf(sum / static_cast<float>(width) + p.epsilon);
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (norm_element(r) >= width) continue;
    float out[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) out[e] = x[r][e] * scale * weight[r][e];
    store_four<kOut>(p.out, row, norm_element(r), out);
  }
}

template <DType kOut, int kRounds>
__device__ void norm_in_registers(const LayerNormParams& p, std::int32_t row, float* partial) {
  const std::int64_t width = p.residual.dims[1];
  float x[kRounds][4];
  float add[kRounds][4] = {};
  float weight[kRounds][4];
  float bias[kRounds][4] = {};
  load_floats(x, floats_of_row(p.residual, row), width);
  if (p.add.data != nullptr) load_floats(add, floats_of_row(p.add, row), width);
  load_floats(weight, static_cast<const float*>(p.weight.data), width);
  if (p.bias.data != nullptr) load_floats(bias, static_cast<const float*>(p.bias.data), width);
  add_residual(p, row, width, add, x);
  float sum = 0.0F;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum += x[r][e];
  }
  const float mean = block_sum(sum, partial) / static_cast<float>(width);
  float squares = 0.0F;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (norm_element(r) >= width) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x[r][e] -= mean;
      squares = fmaf(x[r][e], x[r][e], squares);
    }
  }
  squares = block_sum(squares, partial);
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(width) + p.epsilon);
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (norm_element(r) >= width) continue;
    float out[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) out[e] = fmaf(x[r][e] * scale, weight[r][e], bias[r][e]);
    store_four<kOut>(p.out, row, norm_element(r), out);
  }
}

// Calls visit(element) for each of the thread's elements, in order.
template <class Visit>
__device__ void for_own_elements(std::int64_t width, Visit visit) {
  const std::int64_t rounds = norm_rounds(width);
  for (std::int64_t r = 0; r < rounds; ++r) {
    const std::int64_t first = norm_element(static_cast<int>(r));
    for (std::int64_t i = first; i < first + kNormElements && i < width; ++i) visit(i);
  }
}

// x = residual + add, rounded as it is stored. A thread reads again only what it wrote itself.
__device__ inline float added(const TensorView& add, const TensorView& residual, std::int32_t row,
                              std::int64_t i) {
  const float x = load_element(residual, row, i);
  if (add.data == nullptr) return x;
  const float sum = rounded_to(residual.dtype, x + load_element(add, row, i));
  store_element(residual, row, i, sum);
  return sum;
}

__device__ inline void plain_norm(const RmsNormParams& p, std::int32_t row, float* partial) {
  const std::int64_t width = p.residual.dims[1];
  float sum = 0.0F;
  for_own_elements(width, [&](std::int64_t i) {
    const float x = added(p.add, p.residual, row, i);
    sum = fmaf(x, x, sum);
  });
  sum = block_sum(sum, partial);
  const float scale = 1.0F / sqrtf(sum / static_cast<float>(width) + p.epsilon);
  for_own_elements(width, [&](std::int64_t i) {
    const float weight = load_element(p.weight.data, p.weight.dtype, i);
    store_element(p.out, row, i, load_element(p.residual, row, i) * scale * weight);
  });
}

__device__ inline void plain_norm(const LayerNormParams& p, std::int32_t row, float* partial) {
  const std::int64_t width = p.residual.dims[1];
  float sum = 0.0F;
  for_own_elements(width, [&](std::int64_t i) { sum += added(p.add, p.residual, row, i); });
  const float mean = block_sum(sum, partial) / static_cast<float>(width);
  float squares = 0.0F;
  for_own_elements(width, [&](std::int64_t i) {
    const float x = load_element(p.residual, row, i) - mean;
    squares = fmaf(x, x, squares);
  });
  squares = block_sum(squares, partial);
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(width) + p.epsilon);
  for_own_elements(width, [&](std::int64_t i) {
    const float weight = load_element(p.weight.data, p.weight.dtype, i);
    const float bias = p.bias.data == nullptr ? 0.0F : load_element(p.bias.data, p.bias.dtype, i);
    const float x = (load_element(p.residual, row, i) - mean) * scale;
    store_element(p.out, row, i, fmaf(x, weight, bias));
  });
}

template <DType kOut, class Params>
__device__ void norm_to(const Params& p, std::int32_t row, float* partial) {
  const std::int64_t rounds = norm_rounds(p.residual.dims[1]);
  static_assert(kMaxNormRounds == 4);
  if (rounds <= 1) return norm_in_registers<kOut, 1>(p, row, partial);
  if (rounds <= 2) return norm_in_registers<kOut, 2>(p, row, partial);
  norm_in_registers<kOut, 4>(p, row, partial);
}

__device__ inline bool has_bias_in_floats(const RmsNormParams&) { return true; }
__device__ inline bool has_bias_in_floats(const LayerNormParams& p) {
  return has_four_floats(p.bias);
}

// The body of a kernel. `partial`: shared memory for 32 floats.
template <class Params>
__device__ void norm_kernel(const Params& p, float* partial) {
  const std::int32_t row = static_cast<std::int32_t>(blockIdx.x);
  if (row >= rows_in_use(p.rows)) return;
  if (!fits_registers(p) || !has_bias_in_floats(p)) return plain_norm(p, row, partial);
  switch (p.out.dtype) {
    case DType::kF32: return norm_to<DType::kF32>(p, row, partial);
    case DType::kF16: return norm_to<DType::kF16>(p, row, partial);
    case DType::kBF16: return norm_to<DType::kBF16>(p, row, partial);
    default: __trap();
  }
}

}  // namespace sluice::cuda
