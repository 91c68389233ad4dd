// Matrix product on tensor cores for many rows. A block of 256 threads computes a tile of out from
// tiles of x and of the weight, 64 deep, which asynchronous copies load to shared memory some
// stages ahead. Every element is one chain along K in ascending steps of 16, for every tile. So all
// kernels of one type of weights give the same bits, and a row's result depends on neither the
// other rows nor the segments. REQUIRES (matmul_plan.cpp chooses): x and weights of one 16-bit
// type, rows at multiples of 16 bytes, K a multiple of 8. Or weights in FP8, K a multiple of 16,
// and blocks of scales as long as K or 64 times a power of two, in gate as in up.
//
// Codes of FP8 are copied asynchronously as well, as many stages ahead as the tokens. Each thread
// widens the codes that it copied itself, one stage before they are needed, into one of two tiles
// of 16-bit elements, which the tensor cores read. At the end of a block of scales its sums are
// scaled and added to those of earlier blocks, in a second set of registers.
//
// A row of a tile is 8 chunks of 16 bytes. Chunk c of row r is at place c ^ (r % 8), so that the
// eight rows that ldmatrix reads at a time are in different banks.
#pragma once

#include <type_traits>

#include "device/cuda/kernels/matmul_parts.cuh"
#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
constexpr int kThreads = kMatmulBlock;
constexpr int kDepth = TileShape::kDepth;
constexpr int kChunk = 8;  // elements of 16 bytes
constexpr int kChunks = kDepth / kChunk;
constexpr int kRowBytes = kDepth * 2;
constexpr int kTokenWarps = TileShape::kTokenWarps;
constexpr int kColumnWarps = TileShape::kColumnWarps;

template <DType kElements, const TileShape& kShape>
struct Tiling {
  static constexpr DType kType = kElements;  // of tokens, and of weights that are not in FP8
  static constexpr bool kFp8 = kShape.fp8;
  static constexpr int kTokens = kShape.tokens;
  static constexpr int kColumns = kShape.columns;
  static constexpr int kStages = kShape.stages;
  static constexpr int kStageBytes = kShape.stage_bytes();
  // The pieces of a warp, each for one matrix instruction: 16 tokens by 8 columns.
  static constexpr int kTokenParts = kTokens / kTokenWarps / 16;
  static constexpr int kColumnParts = kColumns / kColumnWarps / 8;
};

__device__ inline unsigned char* chunk_at(unsigned char* tile, int row, int chunk) {
  return tile + row * kRowBytes + ((chunk ^ (row % kChunks)) * 16);
}

// The source of a thread's copies: the same chunk of every 32nd row of a tile.
struct Source {
  const std::uint16_t* from;  // the thread's chunk of its first row, at depth 0
  std::int64_t stride;        // elements between its rows
  int rows;                   // of the matrix, from the thread's first on
};

constexpr int kRowsApart = kThreads / kChunks;

// `first`: the thread's first row; `apart`: rows of the matrix between its rows.
__device__ inline Source source_of(const TensorView& matrix, std::int64_t first, std::int64_t rows,
                                   int apart) {
  const std::int64_t left = rows - first;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  return {row_of_halves(matrix, left > 0 ? first : 0) + chunk * kChunk, apart * matrix.strides[0],
          static_cast<int>(left < 0     ? 0
                           : left > 128 ? 128
                                        : left)};
}

// Starts the copies of a tile's kRows rows. `to` is the thread's first place. Copies zeros beyond
// the matrix's rows or depth.
template <int kRows, int kApart>
__device__ void start_tile(unsigned char* to, const Source& source, std::int64_t k, bool in_depth) {
#pragma unroll
  for (int i = 0; i < kRows / kRowsApart; ++i) {
    const bool present = in_depth && i * kApart < source.rows;
    const std::uint16_t* from = source.from + (present ? i * source.stride + k : 0);
    copy_async(to + i * kRowsApart * kRowBytes, from, present);
  }
}

struct alignas(16) FourWords {
  unsigned words[4];
};

// A thread's share of a stage of codes: 16, a quarter of a row.
struct Codes {
  const unsigned char* from;  // at depth 0
  bool present;               // the row exists
};

template <class Params>
__device__ Codes codes_of(const Params& p, const ColumnTile& tile) {
  const int row = static_cast<int>(threadIdx.x) / 4;
  const std::int64_t column = tile.first + column_of<Params>(row);
  const TensorView& weight = segment_of(p, tile, half_of<Params>(row)).weight;
  const bool present = column < tile.width;
  return {row_bytes(weight, present ? column : 0, 1) + threadIdx.x % 4 * 16, present};
}

// Starts the copy of the thread's codes of a stage; zeros where there are none.
__device__ inline void start_codes(unsigned char* to, const Codes& codes, std::int64_t k,
                                   std::int64_t depth) {
  const bool present = codes.present && k + threadIdx.x % 4 * 16 < depth;
  copy_async(to, codes.from + (present ? k : 0), present);
}

// Widens the codes that the thread itself copied to 16-bit elements of a weight tile.
template <class T>
__device__ void widen_codes(unsigned char* w_tile, const unsigned char* from) {
  const int row = static_cast<int>(threadIdx.x) / 4;
  const FourWords codes = *reinterpret_cast<const FourWords*>(from);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned wide[2][2];
    widen_e4m3<T::kType>(wide[0], codes.words[2 * half]);
    widen_e4m3<T::kType>(wide[1], codes.words[2 * half + 1]);
    unsigned char* to = chunk_at(w_tile, row, static_cast<int>(threadIdx.x) % 4 * 2 + half);
    *reinterpret_cast<FourWords*>(to) = {{wide[0][0], wide[0][1], wide[1][0], wide[1][1]}};
  }
}

// The scales of the columns that a thread sums.
template <class T>
struct ColumnScales {
  const float* of[T::kColumnParts][2];
  int stage_shift;  // a block is 2^stage_shift stages long
};

template <class T, class Params>
__device__ ColumnScales<T> scales_of(const Params& p, const ColumnTile& tile, int column) {
  ColumnScales<T> scales;
  scales.stage_shift = shift_of(segment_of(p, tile, 0).scales, kDepth);
#pragma unroll
  for (int j = 0; j < T::kColumnParts; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = column + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + e;
      const std::int64_t wanted = tile.first + column_of<Params>(row);
      // Beyond the last column any scale may be read, because the result is not stored.
      const std::int64_t present = wanted < tile.width ? wanted : tile.width - 1;
      scales.of[j][e] = row_scales(segment_of(p, tile, half_of<Params>(row)).scales, present);
    }
  }
  return scales;
}

// Adds the sums of a block of scales, after its last stage, to those of the blocks before it.
template <class T>
__device__ void add_block(float (&total)[T::kTokenParts][T::kColumnParts][4],
                          float (&sums)[T::kTokenParts][T::kColumnParts][4],
                          const ColumnScales<T>& scales, int block) {
#pragma unroll
  for (int j = 0; j < T::kColumnParts; ++j) {
    const float scale[2] = {scales.of[j][0][block], scales.of[j][1][block]};
#pragma unroll
    for (int i = 0; i < T::kTokenParts; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        total[i][j][e] = fmaf(sums[i][j][e], scale[e % 2], total[i][j][e]);
        sums[i][j][e] = 0.0F;
      }
    }
  }
}

// Adds one stage's part to the sums of a warp.
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

// The pipeline: start(step) starts the copies of a stage to shared memory, multiply(step) adds the
// stage's products. widen(step), if there is one, runs one step before multiply(step) and converts
// the codes that this thread copied.
struct NoWidening {};

template <class T, class Start, class Multiply, class Widen = NoWidening>
__device__ void run_stages(int steps, Start start, Multiply multiply, Widen widen = {}) {
  constexpr bool kWidens = !std::is_same_v<Widen, NoWidening>;
  // One group of copies per stage, even after the last stage, so that the number of pending groups
  // tells which stages have arrived.
  for (int step = 0; step < T::kStages - 1; ++step) {
    if (step < steps) start(step);
    commit_copies();
  }
  if constexpr (kWidens) {
    wait_for_copies(T::kStages - 2);
    widen(0);
  }
  for (int step = 0; step < steps; ++step) {
    wait_for_copies(T::kStages - (kWidens ? 3 : 2));
    __syncthreads();  // all threads see this stage and have read the previous one
    if (step + T::kStages - 1 < steps) start(step + T::kStages - 1);
    commit_copies();
    if constexpr (kWidens) {
      if (step + 1 < steps) widen(step + 1);
    }
    multiply(step);
  }
}

// The places of a stage and of its widened codes.
template <class T>
__device__ unsigned char* stage_of(int step) {
  return dynamic_shared() + step % T::kStages * T::kStageBytes;
}
template <class T>
__device__ unsigned char* widened_of(int step) {
  return dynamic_shared() + T::kStages * T::kStageBytes + step % 2 * T::kColumns * kRowBytes;
}

// The grid's x counts tiles of tokens, its y tiles of columns. Blocks that run at the same time
// share a weight tile; the input x, which is smaller, stays in the cache.
template <class T, class Params>
__device__ void matmul_tile(const Params& p) {
  const std::int32_t rows = rows_in_use(p.rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * T::kTokens;
  if (row0 >= rows) return;
  const ColumnTile tile = column_tile(p, blockIdx.y, T::kColumns);
  if (tile.segment < 0) return;
  const std::int64_t depth = p.x.dims[1];
  const int steps = static_cast<int>((depth + kDepth - 1) / kDepth);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const Source x_source = source_of(p.x, row0 + row, rows, kRowsApart);
  unsigned char* const place = chunk_at(dynamic_shared(), row, chunk);
  const auto start_x = [&](int step) {
    const std::int64_t k = static_cast<std::int64_t>(step) * kDepth;
    start_tile<T::kTokens, kRowsApart>(place + step % T::kStages * T::kStageBytes, x_source, k,
                                       k + chunk * kChunk < depth);
  };
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int token = warp / kColumnWarps * (T::kTokens / kTokenWarps);
  const int column = warp % kColumnWarps * (T::kColumns / kColumnWarps);
  const bool has_rows = row0 + token < rows;
  float sums[T::kTokenParts][T::kColumnParts][4] = {};

  if constexpr (T::kFp8) {
    static_assert(T::kColumns * 4 == kThreads);
    float total[T::kTokenParts][T::kColumnParts][4] = {};
    const ColumnScales<T> scales = scales_of<T>(p, tile, column);
    const Codes codes = codes_of(p, tile);
    const int own_codes = T::kTokens * kRowBytes + static_cast<int>(threadIdx.x) * 16;
    run_stages<T>(
        steps,
        [&](int step) {
          start_x(step);
          start_codes(stage_of<T>(step) + own_codes, codes,
                      step * static_cast<std::int64_t>(kDepth), depth);
        },
        [&](int step) {
          if (has_rows)
            multiply_stage<T>(stage_of<T>(step), widened_of<T>(step), token, column, sums);
          const int block = step >> scales.stage_shift;
          const bool last = step + 1 == steps || (step + 1) >> scales.stage_shift != block;
          if (last) add_block<T>(total, sums, scales, block);
        },
        [&](int step) { widen_codes<T>(widened_of<T>(step), stage_of<T>(step) + own_codes); });
    if (!has_rows) return;
    store<T>(p, tile, row0 + token, rows, tile.first + column_of<Params>(column), total);
  } else {
    // Rows of the weights that are kRowsApart apart in the tile belong to the same half.
    constexpr int kWeightsApart = column_of<Params>(kRowsApart);
    const Source w_source =
        source_of(segment_of(p, tile, half_of<Params>(row)).weight,
                  tile.first + column_of<Params>(row), tile.width, kWeightsApart);
    run_stages<T>(
        steps,
        [&](int step) {
          start_x(step);
          const std::int64_t k = static_cast<std::int64_t>(step) * kDepth;
          start_tile<T::kColumns, kWeightsApart>(
              place + step % T::kStages * T::kStageBytes + T::kTokens * kRowBytes, w_source, k,
              k + chunk * kChunk < depth);
        },
        [&](int step) {
          unsigned char* stage = stage_of<T>(step);
          if (!has_rows) return;
          multiply_stage<T>(stage, stage + T::kTokens * kRowBytes, token, column, sums);
        });
    if (!has_rows) return;
    store<T>(p, tile, row0 + token, rows, tile.first + column_of<Params>(column), sums);
  }
}

// The body of a kernel.
template <const TileShape& kShape, class Params>
__device__ void tile_kernel(const Params& p) {
  if (p.x.dtype == DType::kBF16) {
    matmul_tile<Tiling<DType::kBF16, kShape>>(p);
  } else {
    matmul_tile<Tiling<DType::kF16, kShape>>(p);
  }
}

}  // namespace sluice::cuda
