// Matrix product with up to three weights side by side, or gated, for all types and addresses. A
// block of threads loads 64 rows of x and 64 of the weights to shared memory, and each thread
// computes 4 by 4 of them. Every element is one chain of fused multiply-adds in ascending order
// along K, so a row's result depends on neither the other rows nor the segments.
#include "device/cuda/kernels/matmul_parts.cuh"

namespace sluice::cuda {
namespace {

constexpr int kTile = 64;  // launch_shapes.cpp counts tiles of this size
constexpr int kDepth = 16;
constexpr int kPerThread = 4;
constexpr int kThreads = (kTile / kPerThread) * (kTile / kPerThread);

using Tile = float[kDepth][kTile + 1];

// Loads columns [k0, k0 + kDepth) of kTile rows, transposed; load(row, k) returns one element.
template <class Load>
__device__ void load_tile(Tile& tile, std::int64_t k0, std::int64_t depth, Load load) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += kThreads) {
    const int r = e / kDepth;
    const int k = e % kDepth;
    tile[k][r] = k0 + k < depth ? load(r, k0 + k) : 0.0F;
  }
}

// The row of the weight tile that is the `j`-th of thread `tx` in a row of threads: a thread has
// two rows of one piece of 8 and the same two of the next piece.
__device__ int row_of_thread(int tx, int j) { return tx / 4 * 16 + tx % 4 * 2 + j % 2 + j / 2 * 8; }

template <class Params>
__device__ void matmul(const Params& p, Tile& x_tile, Tile& w_tile) {
  const std::int32_t rows = rows_in_use(p.rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTile;
  if (row0 >= rows) return;
  const ColumnTile tile = column_tile(p, blockIdx.x, kTile);
  if (tile.segment < 0) return;
  const std::int64_t depth = p.x.dims[1];
  const auto load_x = [&](int row, std::int64_t k) {
    return row0 + row < rows ? load_element(p.x, row0 + row, k) : 0.0F;
  };
  const auto load_weight = [&](int row, std::int64_t k) {
    const std::int64_t column = tile.first + column_of<Params>(row);
    if (column >= tile.width) return 0.0F;
    const MatmulSegment& segment = segment_of(p, tile, half_of<Params>(row));
    const float element = load_element(segment.weight, column, k);
    if (segment.weight.dtype != DType::kF8E4M3) return element;
    return element * row_scales(segment.scales, column)[k / segment.scales.block_cols];
  };

  const int ty = static_cast<int>(threadIdx.x) / (kTile / kPerThread);
  const int tx = static_cast<int>(threadIdx.x) % (kTile / kPerThread);
  // A decode step has few rows: most threads only help to load.
  const bool has_rows = row0 + ty * kPerThread < rows;
  float sum[kPerThread][kPerThread] = {};
  for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    load_tile(x_tile, k0, depth, load_x);
    load_tile(w_tile, k0, depth, load_weight);
    __syncthreads();
    int steps = depth - k0 < kDepth ? static_cast<int>(depth - k0) : kDepth;
    if (!has_rows) steps = 0;
    for (int k = 0; k < steps; ++k) {
      for (int i = 0; i < kPerThread; ++i) {
        for (int j = 0; j < kPerThread; ++j) {
          sum[i][j] =
              fmaf(x_tile[k][ty * kPerThread + i], w_tile[k][row_of_thread(tx, j)], sum[i][j]);
        }
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < kPerThread / kHalves<Params>; ++j) {
    const std::int64_t column = tile.first + column_of<Params>(row_of_thread(tx, j));
    if (column >= tile.width) continue;
    const Biases biases = biases_at(p, tile, column);
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t row = row0 + ty * kPerThread + i;
      if (row >= rows) continue;
      const float other = sum[i][j + kPerThread - kPerThread / kHalves<Params>];
      store_element(p.out, row, tile.out_column + column, finished(p, biases, sum[i][j], other));
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads) sluice_matmul(const MatmulParams p) {
  __shared__ Tile x_tile;
  __shared__ Tile w_tile;
  matmul(p, x_tile, w_tile);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    sluice_gated_matmul(const GatedMatmulParams p) {
  __shared__ Tile x_tile;
  __shared__ Tile w_tile;
  matmul(p, x_tile, w_tile);
}

}  // namespace sluice::cuda
