// Matrix product with up to three weights side by side. Plain on purpose: a block of threads makes
// a tile of 64 rows by 64 columns through shared memory, each thread 4 by 4 of them, and every
// element is one chain of fused multiply-adds in ascending order along K. So a row's result depends
// on neither the other rows nor the segments. Fast kernels come beside it, with figures.
#include "device/cuda/kernels/elements.cuh"

namespace sluice::cuda {
namespace {

constexpr int kTile = 64;  // launch_shapes.cpp counts tiles of this size
constexpr int kDepth = 16;
constexpr int kPerThread = 4;
constexpr int kThreads = (kTile / kPerThread) * (kTile / kPerThread);

// Rows [row0, row0 + kTile) and columns [k0, k0 + kDepth) of a matrix, transposed; zero outside.
__device__ void load_tile(const TensorView& matrix, std::int64_t row0, std::int64_t rows,
                          std::int64_t k0, std::int64_t depth, float (*tile)[kTile + 1]) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += kThreads) {
    const int r = e / kDepth;
    const int k = e % kDepth;
    const bool inside = row0 + r < rows && k0 + k < depth;
    tile[k][r] = inside ? load_element(matrix, row0 + r, k0 + k) : 0.0F;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads) sluice_matmul(const MatmulParams p) {
  __shared__ float x_tile[kDepth][kTile + 1];
  __shared__ float w_tile[kDepth][kTile + 1];
  const std::int32_t rows = rows_in_use(p.rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTile;
  if (row0 >= rows) return;
  std::int64_t tile = blockIdx.x;
  std::int64_t first_column = 0;  // of the segment, in out
  std::int32_t s = 0;
  for (; s < p.num_segments; ++s) {
    const std::int64_t width = p.segments[s].weight.dims[0];
    const std::int64_t tiles = (width + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
    first_column += width;
  }
  if (s == p.num_segments) return;
  const MatmulSegment& segment = p.segments[s];
  const std::int64_t width = segment.weight.dims[0];
  const std::int64_t column0 = tile * kTile;
  const std::int64_t depth = p.x.dims[1];

  const int ty = static_cast<int>(threadIdx.x) / (kTile / kPerThread);
  const int tx = static_cast<int>(threadIdx.x) % (kTile / kPerThread);
  // A decode step has few rows: most threads only help to load.
  const bool has_rows = row0 + ty * kPerThread < rows;
  float sum[kPerThread][kPerThread] = {};
  for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    load_tile(p.x, row0, rows, k0, depth, x_tile);
    load_tile(segment.weight, column0, width, k0, depth, w_tile);
    __syncthreads();
    int steps = depth - k0 < kDepth ? static_cast<int>(depth - k0) : kDepth;
    if (!has_rows) steps = 0;
    for (int k = 0; k < steps; ++k) {
      for (int i = 0; i < kPerThread; ++i) {
        for (int j = 0; j < kPerThread; ++j) {
          sum[i][j] =
              fmaf(x_tile[k][ty * kPerThread + i], w_tile[k][tx * kPerThread + j], sum[i][j]);
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kPerThread; ++i) {
    const std::int64_t row = row0 + ty * kPerThread + i;
    for (int j = 0; j < kPerThread; ++j) {
      const std::int64_t column = column0 + tx * kPerThread + j;
      if (row >= rows || column >= width) continue;
      float value = sum[i][j];
      if (segment.bias.data != nullptr) {
        value += load_element(segment.bias.data, segment.bias.dtype, column);
      }
      store_element(p.out, row, first_column + column, value);
    }
  }
}

}  // namespace sluice::cuda
