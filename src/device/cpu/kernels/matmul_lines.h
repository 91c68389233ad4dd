// Products of few rows of x in BF16 with weights that are widened to BF16 in registers, a line of
// 32 elements at a time. Nothing is written to memory between a weight and its products.
//
// The order of sums is that of the policy P in DotTile: lines follow each other along K. With a
// kPass each pass is summed over lanes, and the passes are added in order. So a row's bits do not
// depend on the kernel. Included by kernels_avx512_bf16.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/simd_avx512_bf16.h"

namespace sluice::kernels {

struct PairOfLines {
  __m512i first;
  __m512i second;
};

// Adds the products of two lines to `sum`, as the policy P does in one step of K.
template <class P>
SLUICE_INLINE __m512 add_line(__m512i x, __m512i w, __m512 sum) {
  if constexpr (P::kPhases == 2) {
    sum = P::multiply_add(P::template widen<0>(x), P::template widen<0>(w), sum);
    return P::multiply_add(P::template widen<1>(x), P::template widen<1>(w), sum);
  } else {
    return P::multiply_add(x, w, sum);
  }
}

// The elements along K that P sums before it adds lanes; 0: all.
template <class P>
constexpr std::int64_t pass_of() {
  if constexpr (requires { P::kPass; }) {
    return P::kPass;
  } else {
    return 0;
  }
}

// Rows of x times columns of the weight, in registers.
// `Source`: what the weight is (line_sources.h). Groups of kLines lines lie kBytes apart in a
// column, and bytes(count) hold the first `count` elements of one. group(address, k, group) reads
// what the lines of a group share; group.pair(i) is its lines 2 i and 2 i + 1 in BF16. Columns up
// to same_until(col, end) may share what begin(col) prepares.
template <class Source, class P, int rows, int cols>
struct LinesTile {
  using S = Avx512Bf16;
  static constexpr std::int64_t kLine = 32;  // elements
  static constexpr int kLines = Source::kLines;
  static constexpr std::int64_t kStep = kLines * kLine;
  static constexpr std::int64_t kPass = pass_of<P>();
  static_assert(kPass % kStep == 0 && P::kStep == kLine);

  // Meanwhile fetches the tile at column `next`, from its beginning to its end: rows of a weight
  // are often as long as a memory page, at whose end hardware prefetching stops.
  static void run(Source& source, const MatmulPiece& p, std::int64_t row, std::int64_t col,
                  std::int64_t next) {
    const std::uint16_t* x[rows];
    const std::uint8_t* w[cols];
    for (int r = 0; r < rows; ++r) {
      x[r] = static_cast<const std::uint16_t*>(p.x) + (row + r) * p.x_stride;
    }
    for (int c = 0; c < cols; ++c) w[c] = source.place(col + c);
    const std::uint8_t* ahead = source.place(next);
    const std::int64_t length = kPass > 0 ? kPass : p.depth;
    for (std::int64_t pass = 0; pass < p.depth; pass += length) {
      const std::int64_t end = pass + length < p.depth ? pass + length : p.depth;
      __m512 sums[rows][cols] = {};
      std::int64_t k = pass;
      for (; k + kStep <= end; k += kStep) {
#pragma GCC unroll 16
        for (int i = 0; i < kAhead; ++i) {
          prefetch_near(ahead + 64 * i);
        }
        ahead += cols * Source::kBytes;
        step(source, x, w, k, sums);
      }
      if (k < end) rest(source, x, w, k, end, sums);
      DotTile<P, rows, cols>::add_to(sums, p, row, col, pass > 0);
    }
  }

 private:
  static constexpr int kAhead = (cols * Source::kBytes + 63) / 64;

  SLUICE_INLINE static void step(Source& source, const std::uint16_t* const (&x)[rows],
                                 const std::uint8_t* (&w)[cols], std::int64_t k,
                                 __m512 (&sums)[rows][cols]) {
    typename Source::Group groups[cols];
#pragma GCC unroll 8
    for (int c = 0; c < cols; ++c) {
      source.group(w[c], k, groups[c]);
      w[c] += Source::kBytes;
    }
#pragma GCC unroll 8
    for (int pair = 0; pair < kLines / 2; ++pair) {
#pragma GCC unroll 8
      for (int c = 0; c < cols; ++c) {
        const PairOfLines lines = groups[c].pair(pair);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const std::uint16_t* const from = x[r] + k + 2 * pair * kLine;
          const __m512 sum = add_line<P>(S::load_pairs(from), lines.first, sums[r][c]);
          sums[r][c] = add_line<P>(S::load_pairs(from + kLine), lines.second, sum);
        }
      }
    }
  }

  // The last lines of a row, which are no whole group.
  SLUICE_INLINE static void rest(Source& source, const std::uint16_t* const (&x)[rows],
                                 const std::uint8_t* (&w)[cols], std::int64_t k, std::int64_t end,
                                 __m512 (&sums)[rows][cols]) {
#pragma GCC unroll 8
    for (int c = 0; c < cols; ++c) {
      // A copy, because memory may end behind the row.
      alignas(64) std::uint8_t copy[Source::kBytes] = {};
      __builtin_memcpy(copy, w[c], static_cast<std::size_t>(Source::bytes(end - k)));
      typename Source::Group group;
      source.group(copy, k, group);
      for (int pair = 0; 2 * pair * kLine < end - k; ++pair) {
        const PairOfLines both = group.pair(pair);
        const std::int64_t at = k + 2 * pair * kLine;
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const __m512 sum = add_line<P>(load(x[r], at, end), both.first, sums[r][c]);
          sums[r][c] = add_line<P>(load(x[r], at + kLine, end), both.second, sum);
        }
      }
    }
  }

  // A line of x, with zeros from `end` on.
  SLUICE_INLINE static __m512i load(const std::uint16_t* x, std::int64_t k, std::int64_t end) {
    const std::int64_t left = end - k;
    if (left <= 0) return _mm512_setzero_si512();
    return S::load_pairs(x + k, static_cast<int>(left < kLine ? left : kLine));
  }
};

template <class Source, class P, int rows>
void matmul_lines_of(const MatmulPiece& p) {
  constexpr int kCols = 6;
  Source source(p);
  std::int64_t col = p.col_begin;
  while (col < p.col_end) {
    const std::int64_t end = source.same_until(col, p.col_end);
    for (; col + kCols <= end; col += kCols) {
      source.begin(col);
      LinesTile<Source, P, rows, kCols>::run(source, p, p.row_begin, col,
                                             col + kCols < p.col_end ? col + kCols : col);
    }
    for (; col < end; ++col) {
      source.begin(col);
      LinesTile<Source, P, rows, 1>::run(source, p, p.row_begin, col,
                                         col + 1 < p.col_end ? col + 1 : col);
    }
  }
  if (p.bias != nullptr) add_bias<Avx512>(p);
}

// REQUIRES: at most four rows.
template <class Source, class P>
void matmul_lines(const MatmulPiece& p) {
  switch (p.row_end - p.row_begin) {
    case 0: return;
    case 1: return matmul_lines_of<Source, P, 1>(p);
    case 2: return matmul_lines_of<Source, P, 2>(p);
    case 3: return matmul_lines_of<Source, P, 3>(p);
    default: return matmul_lines_of<Source, P, 4>(p);
  }
}

}  // namespace sluice::kernels
