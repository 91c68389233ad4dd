// Products of many rows of x in BF16 on units that multiply in F32. Widening takes such a unit
// from the products, so x and the weight are widened once, to scratch memory, and not for each
// register tile: rows of x for all columns of a piece, and a tile of columns for all these rows.
// The weight is widened in passes along K, so that a pass stays in the first-level cache; sums wait
// in scratch memory from pass to pass. Where x has more than two passes, one pass of it is widened
// at a time, for some columns.
//
// Widened rows have the elements at even places of each step of DotBf16, then those at odd places,
// so the products are added in the order of DotBf16, and the bits are the same.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// From this many rows on, and up to this depth, if the weight has to be widened to BF16 first
// (matmul_widened.h): fewer rows do not make up for the writing of widened weights, and in deeper
// products they are widened for each pass anew.
inline constexpr std::int64_t kManyWidenedRows = 64;
inline constexpr std::int64_t kManyWidenedDepth = 2048;
// From this many columns on: fewer, such as the ranks of an adapter, do not make up for widened x.
inline constexpr std::int64_t kManyCols = 24;

// Writes whole steps of DotBf16<S>; zeros follow the last element.
template <class S>
SLUICE_INLINE void widen_row(const std::uint16_t* from, std::int64_t depth, float* to) {
  constexpr int kStep = 2 * S::kLanes;
  const auto put = [to](std::int64_t k, typename S::Pairs v) {
    S::store(to + k, S::even(v));
    S::store(to + k + S::kLanes, S::odd(v));
  };
  std::int64_t k = 0;
  for (; k + kStep <= depth; k += kStep) put(k, S::load_pairs(from + k));
  if (k < depth) put(k, S::load_pairs(from + k, static_cast<int>(depth - k)));
}

// `Fill`: fill(col, cols, k, end, to, stride) writes elements [k, end) of these rows of the weight,
// widened, to rows of `to`. prefetch(col, cols, k, end, part, parts) may prefetch a part of what a
// later fill() reads.
template <class S, class Fill, class Prefetch>
class ManyRows {
 public:
  ManyRows(const MatmulPiece& p, const Fill& fill, const Prefetch& prefetch)
      : p_(p),
        fill_(fill),
        prefetch_(prefetch),
        x_(p.wide),
        weight_(x_ + kManyInput),
        sums_(weight_ + kManyWeight),
        x_stride_((p.depth + kStep - 1) / kStep * kStep + kPadding),
        tile_sums_(sums_) {}

  void run() {
    if (p_.depth > kDeep) return run_deep();
    const std::int64_t fits = kManyInput / x_stride_ / kRows * kRows;
    const std::int64_t chunk = fits < kManySums ? fits : kManySums;
    for (std::int64_t row = p_.row_begin; row < p_.row_end; row += chunk) {
      const std::int64_t end = row + chunk < p_.row_end ? row + chunk : p_.row_end;
      for (std::int64_t r = row; r < end; ++r) {
        const auto* from = static_cast<const std::uint16_t*>(p_.x) + r * p_.x_stride;
        widen_row<S>(from, p_.depth, x_ + (r - row) * x_stride_);
      }
      for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kCols) {
        multiply_columns(row, end, col);
      }
    }
  }

 private:
  using P = DotF32<S, AsF32<S>>;
  using F = typename S::F;
  static constexpr int kRows = S::kDotRows;
  static constexpr int kCols = S::kDotCols;
  static constexpr std::int64_t kStep = 2 * S::kLanes;
  // Rows lie in different sets of a cache.
  static constexpr std::int64_t kPadding = 16;
  static constexpr std::int64_t kStride = kManyPass + kPadding;
  static_assert(kManyWeight >= kCols * kStride);
  static_assert(kManyPass % kStep == 0 && kManySums % kRows == 0);

  // One pass along K, [k, end), of a tile of columns from `col` on.
  struct Pass {
    std::int64_t col;
    std::int64_t k;
    std::int64_t end;
  };

  // Rows of x and columns that wait from pass to pass together, where x is deeper than kDeep: a
  // pass of these rows stays in the second-level cache.
  static constexpr std::int64_t kDeep = 2 * kManyPass;
  static constexpr std::int64_t kDeepRows = kManySums / 2;
  static constexpr std::int64_t kDeepCols = kManySumFloats / (kDeepRows * S::kLanes);
  static_assert(kDeepRows * kStride <= kManyInput);
  static_assert(kDeepRows % kRows == 0 && kDeepCols % kCols == 0);

  // Passes along K outside, tiles of columns inside.
  void run_deep() {
    x_stride_ = kStride;
    for (std::int64_t row = p_.row_begin; row < p_.row_end; row += kDeepRows) {
      const std::int64_t end = row + kDeepRows < p_.row_end ? row + kDeepRows : p_.row_end;
      for (std::int64_t block = p_.col_begin; block < p_.col_end; block += kDeepCols) {
        const std::int64_t block_end =
            block + kDeepCols < p_.col_end ? block + kDeepCols : p_.col_end;
        for (std::int64_t k = 0; k < p_.depth; k += kManyPass) {
          const std::int64_t pass_end = pass_from(block, k).end;
          for (std::int64_t r = row; r < end; ++r) {
            const auto* from = static_cast<const std::uint16_t*>(p_.x) + r * p_.x_stride + k;
            widen_row<S>(from, pass_end - k, x_ + (r - row) * x_stride_);
          }
          x_begin_ = k;
          for (std::int64_t col = block; col < block_end; col += kCols) {
            const Pass next = col + kCols < block_end ? pass_from(col + kCols, k)
                              : pass_end < p_.depth   ? pass_from(block, pass_end)
                                                      : pass_from(block_end, 0);
            tile_sums_ = sums_ + (col - block) * kDeepRows * S::kLanes;
            multiply_pass(row, end, pass_from(col, k), next);
          }
        }
      }
    }
  }

  // One tile of columns, in passes along K.
  void multiply_columns(std::int64_t row, std::int64_t row_end, std::int64_t col) {
    for (std::int64_t k = 0; k < p_.depth; k += kManyPass) {
      const Pass pass = pass_from(col, k);
      multiply_pass(row, row_end, pass,
                    pass.end < p_.depth ? pass_from(col, pass.end) : pass_from(col + kCols, 0));
    }
  }

  // Meanwhile the weight of the pass after it is prefetched.
  void multiply_pass(std::int64_t row, std::int64_t row_end, const Pass& pass, const Pass& next) {
    const std::int64_t cols = columns_from(pass.col);
    fill_(pass.col, cols, pass.k, pass.end, weight_, kStride);
    const std::int64_t groups = (row_end - row + kRows - 1) / kRows;
    for (std::int64_t group = 0; group < groups; ++group) {
      prefetch_(next.col, columns_from(next.col), next.k, next.end, group, groups);
      const std::int64_t first = row + group * kRows;
      multiply_group(pass, cols, row, first, row_end - first);
    }
  }

  Pass pass_from(std::int64_t col, std::int64_t k) const {
    return {col, k, k + kManyPass < p_.depth ? k + kManyPass : p_.depth};
  }
  std::int64_t columns_from(std::int64_t col) const {
    const std::int64_t left = p_.col_end - col;
    return left < kCols ? (left > 0 ? left : 0) : kCols;
  }

  // Some rows of x: kRows, or fewer at the end.
  void multiply_group(const Pass& pass, std::int64_t cols, std::int64_t chunk, std::int64_t row,
                      std::int64_t rows) {
    const float* const x = x_ + (row - chunk) * x_stride_ + pass.k - x_begin_;
    float* const sums = tile_sums_ + (row - chunk) * kCols * S::kLanes;
    if (cols == kCols) {
      switch (rows < kRows ? rows : kRows) {
        case 1: return multiply<1, kCols>(pass, x, 0, row, sums);
        case 2: return multiply<2, kCols>(pass, x, 0, row, sums);
        case 3: return multiply<3, kCols>(pass, x, 0, row, sums);
        default: return multiply<kRows, kCols>(pass, x, 0, row, sums);
      }
    }
    for (std::int64_t r = 0; r < (rows < kRows ? rows : kRows); ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        multiply<1, 1>(pass, x + r * x_stride_, c, row + r, sums + (r * kCols + c) * S::kLanes);
      }
    }
  }

  template <int rows, int cols>
  void multiply(const Pass& pass, const float* x, std::int64_t c, std::int64_t row,
                float* carried) {
    using Tile = DotTile<P, rows, cols>;
    const float* xs[rows];
    const float* ws[cols];
    for (int r = 0; r < rows; ++r) xs[r] = x + r * x_stride_;
    for (int i = 0; i < cols; ++i) ws[i] = weight_ + (c + i) * kStride;
    F sums[rows][cols];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < cols; ++i) {
        sums[r][i] = pass.k == 0 ? S::zero() : S::load(carried + (r * cols + i) * S::kLanes);
      }
    }
    const std::int64_t steps = (pass.end - pass.k + kStep - 1) / kStep * kStep;
    Tile::add_products(xs, ws, {}, 0, steps, sums);
    if (pass.end == p_.depth) return Tile::store(sums, p_, row, pass.col + c);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < cols; ++i) S::store(carried + (r * cols + i) * S::kLanes, sums[r][i]);
    }
  }

  const MatmulPiece& p_;
  const Fill& fill_;
  const Prefetch& prefetch_;
  float* const x_;
  float* const weight_;
  float* const sums_;
  std::int64_t x_stride_;
  std::int64_t x_begin_ = 0;  // the element of K where widened rows begin
  float* tile_sums_;
};

// Whether ManyRows takes the piece.
SLUICE_INLINE bool has_many_rows(const MatmulPiece& p, std::int64_t least_rows,
                                 std::int64_t most_depth) {
  return p.row_end - p.row_begin >= least_rows && p.col_end - p.col_begin >= kManyCols &&
         p.depth <= most_depth;
}

// matmul<DotBf16<S>>, with its bits.
template <class S>
void matmul_bf16(const MatmulPiece& p) {
  if (!has_many_rows(p, S::kManyRows, S::kManyDepth)) return matmul_few_or_many<DotBf16<S>>(p);
  const auto* const weight = static_cast<const std::uint16_t*>(p.weight);
  const auto fill = [&](std::int64_t col, std::int64_t cols, std::int64_t k, std::int64_t end,
                        float* to, std::int64_t stride) {
    for (std::int64_t c = 0; c < cols; ++c) {
      widen_row<S>(weight + (col + c) * p.weight_stride + k, end - k, to + c * stride);
    }
  };
  const auto prefetch = [&](std::int64_t col, std::int64_t cols, std::int64_t k, std::int64_t end,
                            std::int64_t part, std::int64_t parts) {
    constexpr std::int64_t kLine = 32;  // elements
    const std::int64_t lines = (end - k + kLine - 1) / kLine;
    for (std::int64_t i = cols * lines * part / parts; i < cols * lines * (part + 1) / parts; ++i) {
      const std::uint16_t* line =
          weight + (col + i / lines) * p.weight_stride + k + i % lines * kLine;
      prefetch_second(line);
    }
  };
  ManyRows<S, decltype(fill), decltype(prefetch)>(p, fill, prefetch).run();
  if (p.bias != nullptr) add_bias<S>(p);
}

}  // namespace sluice::kernels
