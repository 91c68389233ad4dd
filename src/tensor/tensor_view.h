// TensorView: a pointer with dtype, shape and strides. Owns nothing; valid as long as the memory it
// points to (usually a region of an arena). Trivially copyable and valid C++17, so that op
// parameters, captured graphs and device code can contain it.
// Limits: rank 1 to 4. Strides count elements; the last dimension is contiguous by default.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace sluice {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int32_t rank = 0;
  std::int64_t dims[4] = {0, 0, 0, 0};
  std::int64_t strides[4] = {0, 0, 0, 0};

  constexpr bool empty() const { return data == nullptr; }
  constexpr std::int64_t elements() const {
    std::int64_t n = rank == 0 ? 0 : 1;
    for (std::int32_t i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

static_assert(std::is_trivially_copyable_v<TensorView>);

// A contiguous vector of n elements.
constexpr TensorView vector_view(void* data, DType dtype, std::int64_t n) {
  return {data, dtype, 1, {n, 0, 0, 0}, {1, 0, 0, 0}};
}

// A row-major matrix; `row_stride` elements between rows (cols when contiguous).
constexpr TensorView matrix_view(void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                                 std::int64_t row_stride) {
  return {data, dtype, 2, {rows, cols, 0, 0}, {row_stride, 1, 0, 0}};
}
// Rows follow one another, in whole blocks.
constexpr TensorView matrix_view(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  const std::int64_t block = block_of(dtype).elements;
  return matrix_view(data, dtype, rows, cols, (cols + block - 1) / block * block);
}

}  // namespace sluice
