// Products of x in BF16 with weights that are widened to BF16 and multiplied as those are, with the
// same bits. Rows of x share a tile of columns that is widened once, to scratch memory in the
// cache. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_many.h"

namespace sluice::kernels {

// Products with a weight that `source` widens: fill(col, k, end, to) writes elements [k, end) of a
// column in BF16; k is a multiple of kManyPass, and at most so many elements follow.
template <class S, class Source>
SLUICE_INLINE void matmul_widened(const MatmulPiece& p, Source& source) {
  using P = DotBf16<S>;
  constexpr std::int64_t kGranule = 256;  // so that columns are aligned
  constexpr int kCols = P::kCols;
  if (has_many_rows(p, kManyWidenedRows, kManyWidenedDepth)) {
    const auto fill = [&](std::int64_t col, std::int64_t cols, std::int64_t k, std::int64_t end,
                          float* to, std::int64_t stride) {
      for (std::int64_t c = 0; c < cols; ++c) {
        source.fill(col + c, k, end, p.scratch);
        widen_row<S>(p.scratch, end - k, to + c * stride);
      }
    };
    const auto nothing = [](auto...) {};
    ManyRows<S, decltype(fill), decltype(nothing)>(p, fill, nothing).run();
    if (p.bias != nullptr) add_bias<S>(p);
    return;
  }
  const std::int64_t fits = 2 * kCachedInputBytes / (2 * p.depth) / P::kRows * P::kRows;
  const std::int64_t chunk = fits > P::kRows ? fits : P::kRows;
  MatmulPiece tile = p;
  tile.weight = p.scratch;
  tile.weight_stride = (p.depth + kGranule - 1) / kGranule * kGranule;
  tile.bias = nullptr;
  for (std::int64_t row = p.row_begin; row < p.row_end; row += chunk) {
    const std::int64_t row_end = row + chunk < p.row_end ? row + chunk : p.row_end;
    for (std::int64_t col = p.col_begin; col < p.col_end; col += kCols) {
      const std::int64_t cols = col + kCols < p.col_end ? kCols : p.col_end - col;
      for (std::int64_t k = 0; k < p.depth; k += kManyPass) {
        const std::int64_t end = k + kManyPass < p.depth ? k + kManyPass : p.depth;
        for (std::int64_t c = 0; c < cols; ++c) {
          source.fill(col + c, k, end, p.scratch + c * tile.weight_stride + k);
        }
      }
      tile.out = p.out + col;
      tile.col_begin = 0;
      tile.col_end = cols;
      if (cols == kCols) {
        ColumnTile<P, kCols>::run(tile, row, row_end, 0, false);
      } else {
        for (std::int64_t c = 0; c < cols; ++c) ColumnTile<P, 1>::run(tile, row, row_end, c, false);
      }
    }
  }
  if (p.bias != nullptr) add_bias<S>(p);
}

}  // namespace sluice::kernels
