// What all kernels share: elements of any float dtype as floats, the rows of a step in use, and
// sums over a block. Dtypes are looked at when a kernel runs: one kernel an op serves all of them.
//
// What a caller must never give (a row count beyond its capacity, a token id beyond the table) ends
// the kernel with a trap: the driver reports it at the next synchronization and the device fails,
// instead of a result that is wrong.
// Conversions round to nearest even, as tensor/half.h does on the host.
#pragma once

#include <cstdint>

#include "device/op_params.h"

namespace sluice::cuda {

constexpr int kWarp = 32;

__device__ inline float bf16_to_f32(std::uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

__device__ inline std::uint16_t f32_to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

__device__ inline float f16_to_f32(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ inline std::uint16_t f32_to_f16(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ inline float load_element(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kF16: return f16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    case DType::kBF16: return bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    default: __trap();
  }
  return 0.0F;
}

__device__ inline void store_element(void* data, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[index] = value; return;
    case DType::kF16: static_cast<std::uint16_t*>(data)[index] = f32_to_f16(value); return;
    case DType::kBF16: static_cast<std::uint16_t*>(data)[index] = f32_to_bf16(value); return;
    default: __trap();
  }
}

__device__ inline float load_element(const TensorView& matrix, std::int64_t row, std::int64_t col) {
  return load_element(matrix.data, matrix.dtype, row * matrix.strides[0] + col);
}

__device__ inline void store_element(const TensorView& matrix, std::int64_t row, std::int64_t col,
                                     float value) {
  store_element(matrix.data, matrix.dtype, row * matrix.strides[0] + col, value);
}

// What a later load of `value`, stored as `dtype`, would give.
__device__ inline float rounded_to(DType dtype, float value) {
  switch (dtype) {
    case DType::kF16: return f16_to_f32(f32_to_f16(value));
    case DType::kBF16: return bf16_to_f32(f32_to_bf16(value));
    default: return value;
  }
}

// All of the capacity where no count is given.
__device__ inline std::int32_t rows_in_use(const RowCount& rows) {
  if (rows.value == nullptr) return rows.capacity;
  const std::int32_t count = *rows.value;
  if (count < 0 || count > rows.capacity) __trap();
  return count;
}

// The sum over a warp's lanes, in a fixed order, in every lane.
__device__ inline float warp_sum(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  }
  return value;
}

// The sum over a block of whole warps, in a fixed order, in every thread. All threads call it;
// `partial` is shared memory for 32 floats.
__device__ inline float block_sum(float value, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  __syncthreads();  // what an earlier sum left is read by then
  value = warp_sum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? partial[lane] : 0.0F);
}

}  // namespace sluice::cuda
