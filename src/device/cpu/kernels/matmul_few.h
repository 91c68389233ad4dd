// Products of few rows of x on units that multiply in F32. They wait for memory, so the weight is
// read once, three columns side by side, and fetched into the first-level cache at a steady
// distance ahead of the products: a core has too few outstanding misses of its own, and hardware
// prefetching loses track of more columns and stops where a page ends. One column alone would wait
// for its sum: each product needs the sum before it.
//
// Products are added in the order of DotTile, so the bits are the same.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// The most bytes of x that are read again for every three columns.
inline constexpr std::int64_t kFewInputBytes = 256 << 10;

// All columns of a piece with `rows` rows.
template <class P, int rows>
class ProductsOfFewRows {
 public:
  explicit ProductsOfFewRows(const MatmulPiece& p) : p_(p), whole_(p.depth / kLine * kLine) {
    for (int r = 0; r < rows; ++r) {
      x_[r] = static_cast<const X*>(p.x) + (p.row_begin + r) * p.x_stride;
    }
  }

  void run() const {
    std::int64_t col = p_.col_begin;
    for (; col + kCols <= p_.col_end; col += kCols) multiply<kCols>(col);
    for (; col < p_.col_end; ++col) multiply<1>(col);
  }

 private:
  using X = typename P::X;
  using W = typename P::W;
  static constexpr int kCols = 3;
  static constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(W));  // elements
  // Between a fetch and its use, along each column: 8 KiB in all.
  static constexpr std::int64_t kLead = 128 / kCols * kLine;
  static_assert(kLine % P::kStep == 0);

  template <int cols>
  void multiply(std::int64_t col) const {
    using Tile = DotTile<P, rows, cols>;
    const W* w[cols];
    const W* ahead[cols];
    const std::int64_t lead = kLead < whole_ ? kLead : whole_;
    for (int c = 0; c < cols; ++c) {
      w[c] = static_cast<const W*>(p_.weight) + (col + c) * p_.weight_stride;
      ahead[c] = w[c] + lead;
    }
    typename P::Sum sums[rows][cols] = {};
    multiply_lines<cols>(w, ahead, 0, whole_ - lead, sums);
    // The beginning of the next columns. Where none follow, these are fetched once more.
    const std::int64_t next = col + 2 * cols <= p_.col_end ? cols * p_.weight_stride : 0;
    for (int c = 0; c < cols; ++c) ahead[c] = w[c] + next - (whole_ - lead);
    multiply_lines<cols>(w, ahead, whole_ - lead, whole_, sums);
    Tile::add_products(x_, w, {}, whole_, p_.depth, sums);
    Tile::store(sums, p_, p_.row_begin, col);
  }

  // Whole lines of the columns, elements [k, end) of K, while ahead[c] + k is fetched.
  template <int cols>
  SLUICE_INLINE void multiply_lines(const W* const (&w)[cols], const W* const (&ahead)[cols],
                                    std::int64_t k, std::int64_t end,
                                    typename P::Sum (&sums)[rows][cols]) const {
    for (; k < end; k += kLine) {
#pragma GCC unroll 4
      for (int c = 0; c < cols; ++c) prefetch_near(ahead[c] + k);
#pragma GCC unroll 4
      for (std::int64_t step = 0; step < kLine; step += P::kStep) {
        DotTile<P, rows, cols>::phases(x_, w, k + step, sums);
      }
    }
  }

  const MatmulPiece& p_;
  const std::int64_t whole_;  // elements of K in whole lines
  const X* x_[rows];
};

// matmul<P>, with its bits.
template <class P>
void matmul_few_or_many(const MatmulPiece& p) {
  const std::int64_t rows = p.row_end - p.row_begin;
  const std::int64_t bytes = rows * p.depth * static_cast<std::int64_t>(sizeof(typename P::X));
  if (rows > P::kRows || bytes > kFewInputBytes) return matmul<P>(p);
  with_count<P::kRows>(rows,
                       [&](auto count) { ProductsOfFewRows<P, decltype(count)::value>(p).run(); });
  if (p.bias != nullptr) add_bias<typename P::Simd>(p);
}

}  // namespace sluice::kernels
