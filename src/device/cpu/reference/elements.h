// Loads one element of a tensor of any dtype but I32 as a float (a code of INT8 as a number), for
// the reference ops and for tests. Values: plain; any thread.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "device/op_params.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"
#include "tensor/gguf_blocks.h"
#include "tensor/half.h"
#include "tensor/tensor_view.h"

namespace sluice::reference {

inline float load_element(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kF16: return f16_to_float(static_cast<const std::uint16_t*>(data)[index]);
    case DType::kBF16: return bf16_to_float(static_cast<const std::uint16_t*>(data)[index]);
    case DType::kF8E4M3: return e4m3_to_float(static_cast<const std::uint8_t*>(data)[index]);
    case DType::kI8: return static_cast<const std::int8_t*>(data)[index];
    default: CHECK(!"not a float dtype");
  }
  return 0.0F;
}

inline void store_element(void* data, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[index] = value; return;
    case DType::kF16: static_cast<std::uint16_t*>(data)[index] = float_to_f16(value); return;
    case DType::kBF16: static_cast<std::uint16_t*>(data)[index] = float_to_bf16(value); return;
    case DType::kF8E4M3: static_cast<std::uint8_t*>(data)[index] = float_to_e4m3(value); return;
    default: CHECK(!"not a float dtype");
  }
}

inline float load_element(const TensorView& matrix, std::int64_t row, std::int64_t col) {
  return load_element(matrix.data, matrix.dtype, row * matrix.strides[0] + col);
}

inline float scale_of(const BlockScales& scales, std::int64_t n, std::int64_t k) {
  return scales.values[n / scales.block_rows * scales.stride + k / scales.block_cols];
}

// An element of a matrix in blocks, rounded to BF16.
inline float load_block_element(const TensorView& matrix, std::int64_t row, std::int64_t col) {
  const auto* blocks = matrix.as<std::byte>() + row * bytes_of(matrix.dtype, matrix.strides[0]);
  return bf16_to_float(float_to_bf16(block_element(matrix.dtype, blocks, col)));
}

// Element (n, k) of a segment's weight, scaled.
inline double load_weight(const MatmulSegment& segment, std::int64_t n, std::int64_t k) {
  const DType dtype = segment.weight.dtype;
  const double element = load_element(segment.weight, n, k);
  if (!has_scales(dtype)) return element;
  return element * scale_of(segment.scales, n, k);
}

inline void store_element(const TensorView& matrix, std::int64_t row, std::int64_t col,
                          float value) {
  store_element(matrix.data, matrix.dtype, row * matrix.strides[0] + col, value);
}

}  // namespace sluice::reference
