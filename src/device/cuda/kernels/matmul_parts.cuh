// Helpers of the matmul kernels: which rows of the weights a block of threads takes, and how
// results are stored. Each kernel has two forms, for MatmulParams and for GatedMatmulParams. A
// gated block takes 8 rows of gate and 8 rows of up alternately, so that one thread has both sums
// of a column and combines them. Sums are the same in both forms.
#pragma once

#include <type_traits>

#include "device/cuda/kernels/elements.cuh"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {

// The number of sums that make a column of out.
template <class Params>
inline constexpr int kHalves = std::is_same_v<Params, GatedMatmulParams> ? 2 : 1;

// The column of out, counted from the tile's first, and the half of it, to which row `row` of a
// block's weight tile belongs.
template <class Params>
__device__ constexpr int column_of(int row) {
  return kHalves<Params> == 1 ? row : row / 16 * 8 + row % 8;
}
template <class Params>
__device__ constexpr int half_of(int row) {
  return kHalves<Params> == 1 ? 0 : row / 8 % 2;
}

// The columns of a tile: columns of a segment, starting at `first`. Columns at or beyond `width` do
// not exist.
struct ColumnTile {
  std::int32_t segment = -1;  // -1: there is no such tile
  std::int64_t first = 0;
  std::int64_t width = 0;       // of the segment
  std::int64_t out_column = 0;  // of the segment's first column
};

// The tile of a block of `rows` rows of weights. Tiles are counted over all segments; each segment
// starts a new tile.
__device__ inline ColumnTile column_tile(const MatmulParams& p, std::int64_t index, int rows) {
  ColumnTile tile;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    tile.width = p.segments[s].weight.dims[0];
    const std::int64_t tiles = (tile.width + rows - 1) / rows;
    if (index < tiles) {
      tile.segment = s;
      tile.first = index * rows;
      return tile;
    }
    index -= tiles;
    tile.out_column += tile.width;
  }
  return tile;
}
__device__ inline ColumnTile column_tile(const GatedMatmulParams& p, std::int64_t index, int rows) {
  ColumnTile tile;
  tile.width = p.gate.weight.dims[0];
  tile.first = index * (rows / 2);
  if (tile.first < tile.width) tile.segment = 0;
  return tile;
}

__device__ inline const MatmulSegment& segment_of(const MatmulParams& p, const ColumnTile& tile,
                                                  int /*half*/) {
  return p.segments[tile.segment];
}
__device__ inline const MatmulSegment& segment_of(const GatedMatmulParams& p, const ColumnTile&,
                                                  int half) {
  return half == 0 ? p.gate : p.up;
}

// The biases of a column; 0 without them.
struct Biases {
  float of[2];
};
template <class Params>
__device__ Biases biases_at(const Params& p, const ColumnTile& tile, std::int64_t column) {
  Biases biases = {};
#pragma unroll
  for (int half = 0; half < kHalves<Params>; ++half) {
    const TensorView& bias = segment_of(p, tile, half).bias;
    if (bias.data != nullptr) biases.of[half] = load_element(bias.data, bias.dtype, column);
  }
  return biases;
}

// The result, from the sums of a column's halves.
__device__ inline float finished(const MatmulParams&, const Biases& biases, float sum,
                                 float /*other*/) {
  return sum + biases.of[0];
}
__device__ inline float finished(const GatedMatmulParams& p, const Biases& biases, float gate,
                                 float up) {
  return gated(p.activation, gate + biases.of[0], up + biases.of[1]);
}

struct alignas(8) TwoFloats {
  float first;
  float second;
};

// Stores two columns of a row, with one store if the address is aligned.
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

// The row of a matrix with elements of `of_element` bytes.
__device__ inline const unsigned char* row_bytes(const TensorView& matrix, std::int64_t row,
                                                 int of_element) {
  return static_cast<const unsigned char*>(matrix.data) + row * matrix.strides[0] * of_element;
}

// The scales of a row of codes, by blocks along K.
__device__ inline const float* row_scales(const BlockScales& scales, std::int64_t row) {
  return scales.values + row / scales.block_rows * scales.stride;
}

// A block of scales is 2^shift pieces of `depth` long, or as long as K.
__device__ inline int shift_of(const BlockScales& scales, int depth) {
  int shift = 0;
  while (shift < 30 - 7 && (depth << shift) < scales.block_cols) ++shift;
  return shift;
}

}  // namespace sluice::cuda
