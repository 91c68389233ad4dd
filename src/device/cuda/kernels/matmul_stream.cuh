// Matrix product on tensor cores for few rows, as in decode, where reading the weights once takes
// the time. A block of 8 warps computes 16 or 32 columns for all rows. Each warp takes every eighth
// slab along K, from global memory to registers with loads of 16 bytes, some slabs ahead. Then the
// warps' sums are added, warp 0 first. So the order along K depends on K alone: all kernels of this
// file for one weight type give the same bits, and a row's result depends on neither the other rows
// nor the segments. The other matmul kernels use another order. REQUIRES: as matmul_tile.cuh, and
// at most as many rows as the kernel's name says.
//
// A slab is 64 bytes of a weight's row: 32 elements of 16 bits, or 64 codes of FP8, which are
// widened in registers. A slab is within one block of scales, and its sums are scaled once.
//
// Weights are the matrix instruction's left operand, 16 columns of out at a time, and tokens its
// right operand, 8 at a time. Lane (g, t) loads the t-th quarter of a slab, of row g of the weight
// and of token g. The instruction takes elements 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of 16. Any order
// within a slab is correct if both operands use the same one: the first call takes a lane's
// elements 0 to 3, the second 4 to 7, and so on.
#pragma once

#include "device/cuda/kernels/matmul_parts.cuh"
#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {

constexpr int kThreads = kMatmulBlock;
constexpr int kWarps = StreamShape::kWarps;
constexpr int kPad = 4;  // floats between rows of sums: lanes write to different banks

template <DType kElements, const StreamShape& kShape>
struct Streaming {
  static constexpr DType kType = kElements;  // of tokens, and of weights that are not in FP8
  static constexpr bool kFp8 = kShape.fp8;
  static constexpr int kDepth = StreamShape::kSlabBytes / (kFp8 ? 1 : 2);
  static constexpr int kOfLane = kDepth / 4;  // elements of a row of a slab
  static constexpr int kTokens = kShape.tokens;
  static constexpr int kColumns = kShape.columns;
  static constexpr int kTokenParts = kTokens / 8;
  static constexpr int kColumnParts = kColumns / 16;
  static constexpr int kAhead = kShape.slabs_ahead;
  static constexpr int kSumStride = kColumns + kPad;
};

// A lane's share of a slab.
template <class T>
struct Weights {
  unsigned part[T::kColumnParts][2][4];  // rows g and g + 8 of each
};
template <class T>
struct Tokens {
  unsigned part[T::kTokenParts][T::kOfLane / 8][4];
  float scales[T::kColumnParts][2];  // of the weights' rows, where they are in FP8
};

// The addresses that a lane reads from, at its place in the first slab.
template <class T>
struct Sources {
  const unsigned char* weights[T::kColumnParts][2];
  const std::uint16_t* tokens[T::kTokenParts];
  bool has_token[T::kTokenParts];
  const float* scales[T::kColumnParts][2];
  int slab_shift[2];  // a block of scales is 2^slab_shift slabs long, by halves
};

template <class T, class Params>
__device__ Sources<T> sources_of(const Params& p, const ColumnTile& tile, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int offset = lane % 4 * T::kOfLane;
  Sources<T> from;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const MatmulSegment& segment = segment_of(p, tile, h);
    if constexpr (T::kFp8) from.slab_shift[h] = shift_of(segment.scales, T::kDepth);
#pragma unroll
    for (int i = 0; i < T::kColumnParts; ++i) {
      // Beyond the last column any row may be read, because the result is not stored.
      const std::int64_t column = tile.first + column_of<Params>(i * 16 + h * 8) + lane / 4;
      const std::int64_t row = column < tile.width ? column : tile.width - 1;
      from.weights[i][h] = row_bytes(segment.weight, row, T::kFp8 ? 1 : 2) + lane % 4 * 16;
      if constexpr (T::kFp8) from.scales[i][h] = row_scales(segment.scales, row);
    }
  }
#pragma unroll
  for (int j = 0; j < T::kTokenParts; ++j) {
    const int token = j * 8 + lane / 4;
    from.has_token[j] = token < rows;
    from.tokens[j] = row_of_halves(p.x, from.has_token[j] ? token : 0) + offset;
  }
  return from;
}

// Weights are read once; every block reads the tokens.
enum class Reuse { kNone, kByBlocks };

template <Reuse kReuse>
__device__ void load_or_zero(unsigned (&to)[4], const void* from, bool present) {
  if (present) {
    if constexpr (kReuse == Reuse::kNone) {
      load_once(to, from);
    } else {
      load_shared_input(to, from);
    }
  } else {
    to[0] = to[1] = to[2] = to[3] = 0;
  }
}

// Loads slabs `index`, index + kWarps, ...; zeros beyond the end of K.
template <class T>
__device__ void load_weights(Weights<T> (&to)[T::kAhead], const Sources<T>& from, int index,
                             int depth) {
  const int offset = static_cast<int>(threadIdx.x) % 4 * T::kOfLane;
#pragma unroll
  for (int s = 0; s < T::kAhead; ++s) {
    const int slab = index + s * kWarps;
    const bool present = slab * T::kDepth + offset < depth;
    const std::int64_t bytes = static_cast<std::int64_t>(slab) * StreamShape::kSlabBytes;
#pragma unroll
    for (int i = 0; i < T::kColumnParts; ++i) {
      load_or_zero<Reuse::kNone>(to[s].part[i][0], from.weights[i][0] + bytes, present);
      load_or_zero<Reuse::kNone>(to[s].part[i][1], from.weights[i][1] + bytes, present);
    }
  }
}
template <class T>
__device__ void load_tokens(Tokens<T> (&to)[T::kAhead], const Sources<T>& from, int index,
                            int depth) {
  const int offset = static_cast<int>(threadIdx.x) % 4 * T::kOfLane;
#pragma unroll
  for (int s = 0; s < T::kAhead; ++s) {
    const int slab = index + s * kWarps;
    const int k = slab * T::kDepth;
#pragma unroll
    for (int j = 0; j < T::kTokenParts; ++j) {
      const bool present = from.has_token[j] && k + offset < depth;
#pragma unroll
      for (int q = 0; q < T::kOfLane / 8; ++q) {
        load_or_zero<Reuse::kByBlocks>(to[s].part[j][q], from.tokens[j] + k + q * 8, present);
      }
    }
    if constexpr (T::kFp8) {
#pragma unroll
      for (int i = 0; i < T::kColumnParts; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          to[s].scales[i][h] = k < depth ? from.scales[i][h][slab >> from.slab_shift[h]] : 0.0F;
        }
      }
    }
  }
}

// Elements 4 * step to 4 * step + 3 of a lane's share, in the instruction's layout.
template <class T>
__device__ void take_weights(const unsigned (&from)[4], int step, unsigned (&to)[2]) {
  if constexpr (T::kFp8) {
    widen_e4m3<T::kType>(to, from[step]);
  } else {
    to[0] = from[2 * step];
    to[1] = from[2 * step + 1];
  }
}

template <class T>
__device__ void add_slab(const Weights<T>& weights, const Tokens<T>& tokens,
                         float (&to)[T::kColumnParts][T::kTokenParts][4]) {
#pragma unroll
  for (int step = 0; step < T::kOfLane / 4; ++step) {
#pragma unroll
    for (int i = 0; i < T::kColumnParts; ++i) {
      unsigned w[2][2];
      take_weights<T>(weights.part[i][0], step, w[0]);
      take_weights<T>(weights.part[i][1], step, w[1]);
      const unsigned a[4] = {w[0][0], w[1][0], w[0][1], w[1][1]};
#pragma unroll
      for (int j = 0; j < T::kTokenParts; ++j) {
        const unsigned (&x)[4] = tokens.part[j][step / 2];
        multiply_add<T::kType>(to[i][j], a, x[step % 2 * 2], x[step % 2 * 2 + 1]);
      }
    }
  }
}

template <class T>
__device__ void multiply_slab(const Weights<T>& weights, const Tokens<T>& tokens,
                              float (&sums)[T::kColumnParts][T::kTokenParts][4]) {
  if constexpr (!T::kFp8) {
    add_slab<T>(weights, tokens, sums);
  } else {
    float parts[T::kColumnParts][T::kTokenParts][4] = {};
    add_slab<T>(weights, tokens, parts);
#pragma unroll
    for (int i = 0; i < T::kColumnParts; ++i) {
#pragma unroll
      for (int j = 0; j < T::kTokenParts; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sums[i][j][e] = fmaf(parts[i][j][e], tokens.scales[i][e / 2], sums[i][j][e]);
        }
      }
    }
  }
}

// `partial`: sums[warp][token][column], kSumStride floats a token.
template <class T, class Params>
__device__ void matmul_stream(const Params& p, float* partial) {
  const std::int32_t rows = rows_in_use(p.rows);
  if (rows == 0) return;
  if (rows > T::kTokens) __trap();
  const ColumnTile tile = column_tile(p, blockIdx.x, T::kColumns);
  if (tile.segment < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int depth = static_cast<int>(p.x.dims[1]);
  const int slabs = (depth + T::kDepth - 1) / T::kDepth;
  const Sources<T> from = sources_of<T>(p, tile, rows);
  float sums[T::kColumnParts][T::kTokenParts][4] = {};
  // Tokens are loaded late: they come from the cache and arrive before weights that were requested
  // a round earlier.
  Weights<T> now[T::kAhead];
  load_weights<T>(now, from, warp, depth);
  for (int s = warp; s < slabs; s += T::kAhead * kWarps) {
    Tokens<T> tokens[T::kAhead];
    Weights<T> next[T::kAhead];
    load_tokens<T>(tokens, from, s, depth);
    load_weights<T>(next, from, s + T::kAhead * kWarps, depth);
#pragma unroll
    for (int i = 0; i < T::kAhead; ++i) multiply_slab<T>(now[i], tokens[i], sums);
#pragma unroll
    for (int i = 0; i < T::kAhead; ++i) now[i] = next[i];
  }
#pragma unroll
  for (int i = 0; i < T::kColumnParts; ++i) {
#pragma unroll
    for (int j = 0; j < T::kTokenParts; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = warp * T::kTokens + j * 8 + lane % 4 * 2 + e % 2;
        partial[token * T::kSumStride + i * 16 + lane / 4 + e / 2 * 8] = sums[i][j][e];
      }
    }
  }
  __syncthreads();
  constexpr int kOutColumns = T::kColumns / kHalves<Params>;
  for (int e = static_cast<int>(threadIdx.x); e < kOutColumns * rows; e += kThreads) {
    const int token = e / kOutColumns;
    const int c = e % kOutColumns;
    const std::int64_t column = tile.first + c;
    if (column >= tile.width) continue;
    const int row = kHalves<Params> == 1 ? c : c / 8 * 16 + c % 8;
    float sums_of[2] = {};
#pragma unroll
    for (int half = 0; half < kHalves<Params>; ++half) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        sums_of[half] += partial[(w * T::kTokens + token) * T::kSumStride + row + half * 8];
      }
    }
    store_element(p.out, token, tile.out_column + column,
                  finished(p, biases_at(p, tile, column), sums_of[0], sums_of[1]));
  }
}

// The body of a kernel.
template <const StreamShape& kShape, class Params>
__device__ void stream_kernel(const Params& p) {
  __shared__ float partial[kWarps * kShape.tokens * (kShape.columns + kPad)];
  if (p.x.dtype == DType::kBF16) {
    matmul_stream<Streaming<DType::kBF16, kShape>>(p, partial);
  } else {
    matmul_stream<Streaming<DType::kF16, kShape>>(p, partial);
  }
}

}  // namespace sluice::cuda
