// What the matmul kernels share: which columns a block of threads makes, and how results go out.
#pragma once

#include "device/cuda/kernels/elements.cuh"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {

// Columns [first, first + a tile's width) of a segment; those from `width` on do not exist.
struct ColumnTile {
  std::int32_t segment = -1;  // -1: there is no such tile
  std::int64_t first = 0;
  std::int64_t width = 0;       // of the segment
  std::int64_t out_column = 0;  // of the segment's first column
};

// Tiles are counted through the segments, each of which starts a new one.
__device__ inline ColumnTile column_tile(const MatmulParams& p, std::int64_t index, int columns) {
  ColumnTile tile;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    tile.width = p.segments[s].weight.dims[0];
    const std::int64_t tiles = (tile.width + columns - 1) / columns;
    if (index < tiles) {
      tile.segment = s;
      tile.first = index * columns;
      return tile;
    }
    index -= tiles;
    tile.out_column += tile.width;
  }
  return tile;
}

// Of a column of the segment; 0 without biases.
__device__ inline float bias_at(const TensorView& bias, std::int64_t column) {
  return bias.data == nullptr ? 0.0F : load_element(bias.data, bias.dtype, column);
}

struct alignas(8) TwoFloats {
  float first;
  float second;
};

// Two columns of a row, in one store where the address allows it.
__device__ inline void store_two(const TensorView& out, std::int64_t row, std::int64_t column,
                                 float first, float second) {
  const std::int64_t index = row * out.strides[0] + column;
  if (out.dtype == DType::kF32) {
    float* to = static_cast<float*>(out.data) + index;
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(TwoFloats) == 0) {
      *reinterpret_cast<TwoFloats*>(to) = {first, second};
    } else {
      to[0] = first;
      to[1] = second;
    }
    return;
  }
  std::uint16_t* to = static_cast<std::uint16_t*>(out.data) + index;
  const unsigned packed =
      out.dtype == DType::kBF16 ? pack_bf16(first, second) : pack_f16(first, second);
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(packed) == 0) {
    *reinterpret_cast<unsigned*>(to) = packed;
  } else {
    to[0] = static_cast<std::uint16_t>(packed);
    to[1] = static_cast<std::uint16_t>(packed >> 16);
  }
}

__device__ inline const std::uint16_t* row_of_halves(const TensorView& matrix, std::int64_t row) {
  return static_cast<const std::uint16_t*>(matrix.data) + row * matrix.strides[0];
}

}  // namespace sluice::cuda
