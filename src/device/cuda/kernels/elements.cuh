// Helpers of all kernels: elements of any float dtype as floats, the number of rows in use, and
// sums over a block. Kernels read dtypes at run time: one kernel per op serves all of them.
//
// Invalid input (a row count beyond its capacity, a token id beyond the table) ends the kernel with
// a trap: the driver reports it at the next synchronization and the device fails, instead of a
// wrong result. Conversions round to nearest even, as tensor/half.h does on the host.
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
  const unsigned sign = (bits & 0x8000U) << 16;
  const unsigned magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) return __uint_as_float(sign | 0x7F800000U | (magnitude << 13));
  // Exact, subnormals too: the exponent's bias differs by 112.
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << 13) * 0x1p112F));
}

__device__ inline std::uint16_t f32_to_f16(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned sign = (bits >> 16) & 0x8000U;
  const unsigned magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // overflow
  if (magnitude < 0x38800000U) {  // subnormal result: a multiple of 2^-24
    // Adding 1/2 shifts the multiple into the low bits and rounds it to nearest even.
    const float shifted = __uint_as_float(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (__float_as_uint(shifted) - 0x3F000000U));
  }
  const unsigned rebased = magnitude - 0x38000000U;
  const unsigned rounded = rebased + 0xFFFU + ((rebased >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

// E4M3, as tensor/float8.h.
__device__ inline float e4m3_to_f32(std::uint8_t code) {
  const unsigned sign = (code & 0x80U) << 24;
  const unsigned magnitude = code & 0x7FU;
  if (magnitude == 0x7FU) return __uint_as_float(sign | 0x7FC00000U);
  // Exact, subnormals too: the exponent's bias differs by 120.
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << 20) * 0x1p120F));
}

__device__ inline float load_element(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kF16: return f16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    case DType::kBF16: return bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    case DType::kF8E4M3: return e4m3_to_f32(static_cast<const std::uint8_t*>(data)[index]);
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

// `value` after a store as `dtype` and a load.
__device__ inline float rounded_to(DType dtype, float value) {
  switch (dtype) {
    case DType::kF16: return f16_to_f32(f32_to_f16(value));
    case DType::kBF16: return bf16_to_f32(f32_to_bf16(value));
    default: return value;
  }
}

// activation(gate) * up.
__device__ inline float gated(GatedActivation activation, float gate, float up) {
  float inner = gate;
  if (activation == GatedActivation::kGeluTanh) {
    // (1 + tanh(u)) / 2 is the logistic function of 2 u, which stays accurate where tanh approaches
    // -1.
    inner = 1.5957691216057308F * (gate + 0.044715F * gate * gate * gate);
  }
  return gate / (1.0F + expf(-inner)) * up;
}

// The capacity if there is no count.
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

// The largest value of a warp's lanes, in every lane; the result is NaN only if all lanes are NaN.
__device__ inline float warp_max(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  return value;
}

// The sum over a block of whole warps, in a fixed order, in every thread. All threads call it;
// `partial` is shared memory for 32 floats.
__device__ inline float block_sum(float value, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  __syncthreads();  // all threads have read an earlier sum
  value = warp_sum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? partial[lane] : 0.0F);
}

}  // namespace sluice::cuda
