// Matrix product on tensor cores for few rows, as in decode: the time goes into reading the weights
// once. A block of 8 warps makes 16 or 32 columns for all rows. Each warp takes every eighth slab
// of 32 along K, straight from global memory to registers with loads of 16 bytes, some slabs ahead;
// then the warps' sums are added, warp 0 first. So the order along K is fixed by K alone: both
// kernels here give the same bits, and a row's result depends on neither the other rows nor the
// segments. It is another order than that of the other matmul kernels.
// REQUIRES: as matmul_tile.cu, and at most as many rows as the kernel's name says.
//
// Weights are the matrix instruction's left operand, 16 columns of out at a time, and tokens its
// right one, 8 at a time. Lane (g, t) loads elements 8 t to 8 t + 7 of a slab, of row g of the
// weight and of token g. The instruction wants 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of 16; as long as
// both operands agree on which is which, any order within a slab will do: its first call gets a
// lane's elements 0 to 3, its second 4 to 7.
#include "device/cuda/kernels/matmul_parts.cuh"
#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = kMatmulBlock;
constexpr int kWarps = StreamShape::kWarps;
constexpr int kDepth = StreamShape::kDepth;
constexpr int kPad = 4;  // floats between rows of sums: lanes write to different banks

template <DType kElements, const StreamShape& kShape>
struct Streaming {
  static constexpr DType kType = kElements;
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
  unsigned part[T::kTokenParts][4];
};

// What a lane reads from, at its own place in the first slab.
template <class T>
struct Sources {
  const std::uint16_t* weights[T::kColumnParts][2];
  const std::uint16_t* tokens[T::kTokenParts];
  bool has_token[T::kTokenParts];
};

template <class T, class Params>
__device__ Sources<T> sources_of(const Params& p, const ColumnTile& tile, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int offset = lane % 4 * 8;
  Sources<T> from;
#pragma unroll
  for (int i = 0; i < T::kColumnParts; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Beyond the last column: any row will do, nobody looks at the result.
      const std::int64_t column = tile.first + column_of<Params>(i * 16 + h * 8) + lane / 4;
      const std::int64_t row = column < tile.width ? column : tile.width - 1;
      const TensorView& weight = segment_of(p, tile, h).weight;
      from.weights[i][h] = row_of_halves(weight, row) + offset;
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

__device__ void load_or_zero(unsigned (&to)[4], const std::uint16_t* from, bool present) {
  if (present) {
    load_once(to, from);
  } else {
    to[0] = to[1] = to[2] = to[3] = 0;
  }
}

// Slabs `index`, index + kWarps, ...; zeros behind the end of K.
template <class T>
__device__ void load_weights(Weights<T> (&to)[T::kAhead], const Sources<T>& from, int index,
                             int depth) {
  const int offset = static_cast<int>(threadIdx.x) % 4 * 8;
#pragma unroll
  for (int s = 0; s < T::kAhead; ++s) {
    const int k = (index + s * kWarps) * kDepth;
#pragma unroll
    for (int i = 0; i < T::kColumnParts; ++i) {
      load_or_zero(to[s].part[i][0], from.weights[i][0] + k, k + offset < depth);
      load_or_zero(to[s].part[i][1], from.weights[i][1] + k, k + offset < depth);
    }
  }
}
template <class T>
__device__ void load_tokens(Tokens<T> (&to)[T::kAhead], const Sources<T>& from, int index,
                            int depth) {
  const int offset = static_cast<int>(threadIdx.x) % 4 * 8;
#pragma unroll
  for (int s = 0; s < T::kAhead; ++s) {
    const int k = (index + s * kWarps) * kDepth;
#pragma unroll
    for (int j = 0; j < T::kTokenParts; ++j) {
      load_or_zero(to[s].part[j], from.tokens[j] + k, from.has_token[j] && k + offset < depth);
    }
  }
}

template <class T>
__device__ void multiply_slab(const Weights<T>& weights, const Tokens<T>& tokens,
                              float (&sums)[T::kColumnParts][T::kTokenParts][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < T::kColumnParts; ++i) {
      const unsigned (&w)[2][4] = weights.part[i];
      const unsigned a[4] = {w[0][2 * half], w[1][2 * half], w[0][2 * half + 1],
                             w[1][2 * half + 1]};
#pragma unroll
      for (int j = 0; j < T::kTokenParts; ++j) {
        multiply_add<T::kType>(sums[i][j], a, tokens.part[j][2 * half],
                               tokens.part[j][2 * half + 1]);
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
  const int slabs = (depth + kDepth - 1) / kDepth;
  const Sources<T> from = sources_of<T>(p, tile, rows);
  float sums[T::kColumnParts][T::kTokenParts][4] = {};
  // Tokens come from the cache, sooner than weights that were asked for a round before.
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

template <const StreamShape& kShape, class Params>
__device__ void by_type(const Params& p, float* partial) {
  if (p.x.dtype == DType::kBF16) {
    matmul_stream<Streaming<DType::kBF16, kShape>>(p, partial);
  } else {
    matmul_stream<Streaming<DType::kF16, kShape>>(p, partial);
  }
}

template <const StreamShape& kShape>
constexpr int kSums = kWarps * kShape.tokens * (kShape.columns + kPad);

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_8(const MatmulParams p) {
  __shared__ float partial[kSums<kStream8>];
  by_type<kStream8>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_16(const MatmulParams p) {
  __shared__ float partial[kSums<kStream16>];
  by_type<kStream16>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_16_narrow(const MatmulParams p) {
  __shared__ float partial[kSums<kStream16Narrow>];
  by_type<kStream16Narrow>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_8(const GatedMatmulParams p) {
  __shared__ float partial[kSums<kStream8>];
  by_type<kStream8>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_16(const GatedMatmulParams p) {
  __shared__ float partial[kSums<kStream16>];
  by_type<kStream16>(p, partial);
}

}  // namespace sluice::cuda
