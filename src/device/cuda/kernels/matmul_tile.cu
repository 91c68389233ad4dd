// Matrix product on tensor cores for many rows: a block of 256 threads makes a tile of out from
// tiles of x and of the weight, 64 deep, that asynchronous copies bring to shared memory a few
// stages ahead. Every element is one chain along K in ascending steps of 16, whatever the tile: so
// both kernels here give the same bits, and a row's result depends on neither the other rows nor
// the segments.
// REQUIRES (matmul_plan.cpp chooses): x and weights of one 16-bit type, rows at multiples of 16
// bytes, K a multiple of 8.
//
// A row of a tile is 8 chunks of 16 bytes. Chunk c of row r lies at place c ^ (r % 8), so that the
// eight rows that ldmatrix reads at a time lie in different banks.
#include "device/cuda/kernels/matmul_parts.cuh"
#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = kMatmulBlock;
constexpr int kDepth = TileShape::kDepth;
constexpr int kChunk = 8;  // elements of 16 bytes
constexpr int kChunks = kDepth / kChunk;
constexpr int kRowBytes = kDepth * 2;
constexpr int kTokenWarps = 2;  // the block's 8 warps, over tokens and over columns
constexpr int kColumnWarps = 4;

template <DType kElements, const TileShape& kShape>
struct Tiling {
  static constexpr DType kType = kElements;
  static constexpr int kTokens = kShape.tokens;
  static constexpr int kColumns = kShape.columns;
  static constexpr int kStages = kShape.stages;
  static constexpr int kStageBytes = kShape.stage_bytes();
  // Of a warp, in pieces of a matrix instruction: 16 tokens by 8 columns.
  static constexpr int kTokenParts = kTokens / kTokenWarps / 16;
  static constexpr int kColumnParts = kColumns / kColumnWarps / 8;
};

__device__ unsigned char* chunk_at(unsigned char* tile, int row, int chunk) {
  return tile + row * kRowBytes + ((chunk ^ (row % kChunks)) * 16);
}

// Where a thread copies from: the same chunk of every 32nd row of a tile.
struct Source {
  const std::uint16_t* from;  // the thread's chunk of its first row, at depth 0
  std::int64_t stride;        // elements between its rows
  int rows;                   // of the matrix, from the thread's first on
};

constexpr int kRowsApart = kThreads / kChunks;

// `first`: the thread's first row; `apart`: rows of the matrix between its rows.
__device__ Source source_of(const TensorView& matrix, std::int64_t first, std::int64_t rows,
                            int apart) {
  const std::int64_t left = rows - first;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  return {row_of_halves(matrix, left > 0 ? first : 0) + chunk * kChunk, apart * matrix.strides[0],
          static_cast<int>(left < 0     ? 0
                           : left > 128 ? 128
                                        : left)};
}

// Starts the copies of a tile's kRows rows, `to` being the thread's first place; zeros where the
// matrix has no more rows or depth.
template <int kRows, int kApart>
__device__ void start_tile(unsigned char* to, const Source& source, std::int64_t k, bool in_depth) {
#pragma unroll
  for (int i = 0; i < kRows / kRowsApart; ++i) {
    const bool present = in_depth && i * kApart < source.rows;
    const std::uint16_t* from = source.from + (present ? i * source.stride + k : 0);
    copy_async(to + i * kRowsApart * kRowBytes, from, present);
  }
}

// One stage's part of the sums of a warp.
template <class T>
__device__ void multiply_stage(unsigned char* x_tile, unsigned char* w_tile, int token, int column,
                               float (&sums)[T::kTokenParts][T::kColumnParts][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    unsigned x[T::kTokenParts][4];
#pragma unroll
    for (int i = 0; i < T::kTokenParts; ++i) {
      load_matrices(x[i], chunk_at(x_tile, token + i * 16 + lane % 16, k * 2 + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < T::kColumnParts; j += 2) {
      unsigned w[4];
      load_matrices(
          w, chunk_at(w_tile, column + j * 8 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < T::kTokenParts; ++i) {
        multiply_add<T::kType>(sums[i][j], x[i], w[0], w[1]);
        multiply_add<T::kType>(sums[i][j + 1], x[i], w[2], w[3]);
      }
    }
  }
}

template <class T, class Params>
__device__ void store(const Params& p, const ColumnTile& tile, std::int64_t first_token,
                      std::int64_t rows, std::int64_t first_column,
                      const float (&sums)[T::kTokenParts][T::kColumnParts][4]) {
  constexpr int kParts = kHalves<Params>;  // pieces of 8 rows of weights that make 8 columns
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int j = 0; j < T::kColumnParts; j += kParts) {
    const std::int64_t column = first_column + j / kParts * 8 + lane % 4 * 2;
    if (column >= tile.width) continue;
    const bool both = column + 1 < tile.width;
    const Biases low = biases_at(p, tile, column);
    const Biases high = both ? biases_at(p, tile, column + 1) : Biases{};
#pragma unroll
    for (int i = 0; i < 2 * T::kTokenParts; ++i) {
      const std::int64_t token = first_token + lane / 4 + i * 8;
      if (token >= rows) continue;
      const float (&sum)[4] = sums[i / 2][j];
      const float (&other)[4] = sums[i / 2][j + kParts - 1];
      const int e = i % 2 * 2;
      const float first = finished(p, low, sum[e], other[e]);
      if (both) {
        store_two(p.out, token, tile.out_column + column, first,
                  finished(p, high, sum[e + 1], other[e + 1]));
      } else {
        store_element(p.out, token, tile.out_column + column, first);
      }
    }
  }
}

// Blocks in x are tiles of tokens, in y of columns: those that run together share a weight tile,
// and x, the smaller one, stays in the cache.
template <class T, class Params>
__device__ void matmul_tile(const Params& p) {
  const std::int32_t rows = rows_in_use(p.rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * T::kTokens;
  if (row0 >= rows) return;
  const ColumnTile tile = column_tile(p, blockIdx.y, T::kColumns);
  if (tile.segment < 0) return;
  const std::int64_t depth = p.x.dims[1];
  const int steps = static_cast<int>((depth + kDepth - 1) / kDepth);
  // Rows of the weights that lie kRowsApart apart in the tile are of the same half.
  constexpr int kWeightsApart = column_of<Params>(kRowsApart);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const Source x_source = source_of(p.x, row0 + row, rows, kRowsApart);
  const Source w_source = source_of(segment_of(p, tile, half_of<Params>(row)).weight,
                                    tile.first + column_of<Params>(row), tile.width, kWeightsApart);
  unsigned char* const place = chunk_at(dynamic_shared(), row, chunk);
  const auto start = [&](int step) {
    unsigned char* to = place + step % T::kStages * T::kStageBytes;
    const std::int64_t k = static_cast<std::int64_t>(step) * kDepth;
    const bool in_depth = k + chunk * kChunk < depth;
    start_tile<T::kTokens, kRowsApart>(to, x_source, k, in_depth);
    start_tile<T::kColumns, kWeightsApart>(to + T::kTokens * kRowBytes, w_source, k, in_depth);
  };

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int token = warp / kColumnWarps * (T::kTokens / kTokenWarps);
  const int column = warp % kColumnWarps * (T::kColumns / kColumnWarps);
  const bool has_rows = row0 + token < rows;
  float sums[T::kTokenParts][T::kColumnParts][4] = {};
  // One group of copies a stage, also where there is none left: so counts tell what has arrived.
  for (int step = 0; step < T::kStages - 1; ++step) {
    if (step < steps) start(step);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
    wait_for_copies(T::kStages - 2);
    __syncthreads();  // this stage is there for all, and all have read the one before
    if (step + T::kStages - 1 < steps) start(step + T::kStages - 1);
    commit_copies();
    unsigned char* stage = dynamic_shared() + step % T::kStages * T::kStageBytes;
    if (has_rows) multiply_stage<T>(stage, stage + T::kTokens * kRowBytes, token, column, sums);
  }
  if (!has_rows) return;
  store<T>(p, tile, row0 + token, rows, tile.first + column_of<Params>(column), sums);
}

template <const TileShape& kShape, class Params>
__device__ void by_type(const Params& p) {
  if (p.x.dtype == DType::kBF16) {
    matmul_tile<Tiling<DType::kBF16, kShape>>(p);
  } else {
    matmul_tile<Tiling<DType::kF16, kShape>>(p);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_64(const MatmulParams p) {
  by_type<kTile64>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_128(const MatmulParams p) {
  by_type<kTile128>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_64(const GatedMatmulParams p) {
  by_type<kTile64>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_128(const GatedMatmulParams p) {
  by_type<kTile128>(p);
}

}  // namespace sluice::cuda
