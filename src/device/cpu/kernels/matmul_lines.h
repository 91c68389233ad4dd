// Products of few rows of x in BF16 with weights that are widened to BF16 in registers, a line of
// 32 elements at a time. Nothing is written to memory between a weight and its products.
//
// The order of sums is that of the policy P in DotTile: lines follow each other along K. With a
// kPass each pass is summed over lanes, and the passes are added in order. So a row's bits do not
// depend on the kernel. Included by kernels_avx512_bf16.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/packed_rows.h"
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

// Rows of x where they lie, and their elements from k on.
template <int rows>
struct RowsInPlace {
  RowsInPlace(const MatmulPiece& p, std::int64_t row, std::int64_t k) {
    for (int r = 0; r < rows; ++r) {
      x[r] = static_cast<const std::uint16_t*>(p.x) + (row + r) * p.x_stride + k;
    }
  }
  // The line at element k, or its first `count` elements.
  SLUICE_INLINE __m512i line(int r, std::int64_t k) const {
    return Avx512Bf16::load_pairs(x[r] + k);
  }
  SLUICE_INLINE __m512i line(int r, std::int64_t k, int count) const {
    return Avx512Bf16::load_pairs(x[r] + k, count);
  }

  const std::uint16_t* x[rows];
};

// A pass of packed rows (packed_rows.h), from a whole group on. Zeros follow the last element.
struct RowsOfPass {
  SLUICE_INLINE __m512i line(int r, std::int64_t k) const {
    return _mm512_load_si512(x + r / kPanelRows * group + r % kPanelRows * kPanelLine +
                             k * kPanelRows);
  }
  SLUICE_INLINE __m512i line(int r, std::int64_t k, int /*count*/) const { return line(r, k); }

  const std::uint16_t* x;
  std::int64_t group;  // elements from group to group
};

// Rows of x times columns of the weight, in registers.
// `Source`: what the weight is (line_sources.h). Groups of kLines lines lie kBytes apart in a
// column, and bytes(count) hold the first `count` elements of one. group(address, k, group) reads
// what the lines of a group share; group.pair(i) is its lines 2 i and 2 i + 1 in BF16. Columns up
// to same_until(col, end) may share what begin(col, k, end) prepares for elements [k, end) of K.
template <class Source, class P, int rows, int cols>
struct LinesTile {
  static constexpr std::int64_t kLine = 32;  // elements
  static constexpr int kLines = Source::kLines;
  static constexpr std::int64_t kStep = kLines * kLine;
  static_assert(pass_of<P>() % kStep == 0 && P::kStep == kLine);

  // Elements [begin, end) of K, at most a pass of P: `x` has its rows from `begin` on. fetch(k) is
  // called for each group of lines.
  template <class Rows, class Fetch>
  SLUICE_INLINE static void run(Source& source, const MatmulPiece& p, const Rows& x,
                                std::int64_t row, std::int64_t col, std::int64_t begin,
                                std::int64_t end, const Fetch& fetch) {
    const std::uint8_t* w[cols];
    for (int c = 0; c < cols; ++c) w[c] = source.place(col + c) + Source::bytes(begin);
    __m512 sums[rows][cols] = {};
    std::int64_t k = begin;
    for (; k + kStep <= end; k += kStep) {
      fetch(k);
      step(source, x, w, begin, k, sums);
    }
    if (k < end) rest(source, x, w, begin, k, end, sums);
    DotTile<P, rows, cols>::add_to(sums, p, row, col, begin > 0);
  }

 private:
  // So few columns are widened together, so that each line of x is loaded once for them.
  static constexpr bool kTogether = cols <= 2;

  template <class Rows>
  SLUICE_INLINE static void step(Source& source, const Rows& x, const std::uint8_t* (&w)[cols],
                                 std::int64_t begin, std::int64_t k, __m512 (&sums)[rows][cols]) {
    typename Source::Group groups[cols];
#pragma GCC unroll 8
    for (int c = 0; c < cols; ++c) {
      source.group(w[c], k, groups[c]);
      w[c] += Source::kBytes;
    }
#pragma GCC unroll 8
    for (int pair = 0; pair < kLines / 2; ++pair) {
      const std::int64_t at = k - begin + 2 * pair * kLine;
      if constexpr (kTogether) {
        PairOfLines lines[cols];
#pragma GCC unroll 2
        for (int c = 0; c < cols; ++c) lines[c] = groups[c].pair(pair);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const __m512i first = x.line(r, at);
#pragma GCC unroll 2
          for (int c = 0; c < cols; ++c) {
            sums[r][c] = add_line<P>(first, lines[c].first, sums[r][c]);
          }
          const __m512i second = x.line(r, at + kLine);
#pragma GCC unroll 2
          for (int c = 0; c < cols; ++c) {
            sums[r][c] = add_line<P>(second, lines[c].second, sums[r][c]);
          }
        }
      } else {
#pragma GCC unroll 8
        for (int c = 0; c < cols; ++c) {
          const PairOfLines lines = groups[c].pair(pair);
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            const __m512 sum = add_line<P>(x.line(r, at), lines.first, sums[r][c]);
            sums[r][c] = add_line<P>(x.line(r, at + kLine), lines.second, sum);
          }
        }
      }
    }
  }

  // The last lines of a row, which are no whole group.
  template <class Rows>
  SLUICE_INLINE static void rest(Source& source, const Rows& x, const std::uint8_t* (&w)[cols],
                                 std::int64_t begin, std::int64_t k, std::int64_t end,
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
          const __m512 sum = add_line<P>(line(x, r, begin, at, end), both.first, sums[r][c]);
          sums[r][c] = add_line<P>(line(x, r, begin, at + kLine, end), both.second, sum);
        }
      }
    }
  }

  // A line of x, with zeros from `end` on.
  template <class Rows>
  SLUICE_INLINE static __m512i line(const Rows& x, int r, std::int64_t begin, std::int64_t k,
                                    std::int64_t end) {
    const std::int64_t left = end - k;
    if (left <= 0) return _mm512_setzero_si512();
    return x.line(r, k - begin, static_cast<int>(left < kLine ? left : kLine));
  }
};

// So few rows of x that six columns at a time leave room for their sums in registers.
template <class Source, class P, int rows>
class FewRows {
 public:
  static void run(const MatmulPiece& p) {
    constexpr int kCols = 6;
    Source source(p);
    std::int64_t col = p.col_begin;
    while (col < p.col_end) {
      const std::int64_t end = source.same_until(col, p.col_end);
      source.begin(col, 0, p.depth);
      for (; col + kCols <= end; col += kCols) {
        multiply<kCols>(source, p, col, col + kCols < p.col_end ? col + kCols : col);
      }
      for (; col < end; ++col) multiply<1>(source, p, col, col + 1 < p.col_end ? col + 1 : col);
    }
    if (p.bias != nullptr) add_bias<Avx512>(p);
  }

 private:
  // Meanwhile fetches the tile at column `next`, from its beginning to its end: rows of a weight
  // are often as long as a memory page, at whose end hardware prefetching stops.
  template <int cols>
  static void multiply(Source& source, const MatmulPiece& p, std::int64_t col, std::int64_t next) {
    constexpr int kAhead = (cols * Source::kBytes + 63) / 64;
    const std::uint8_t* ahead = source.place(next);
    const auto fetch = [&](std::int64_t /*k*/) {
#pragma GCC unroll 16
      for (int i = 0; i < kAhead; ++i) prefetch_near(ahead + 64 * i);
      ahead += cols * Source::kBytes;
    };
    const std::int64_t length = pass_of<P>() > 0 ? pass_of<P>() : p.depth;
    for (std::int64_t pass = 0; pass < p.depth; pass += length) {
      const std::int64_t end = pass + length < p.depth ? pass + length : p.depth;
      LinesTile<Source, P, rows, cols>::run(source, p, RowsInPlace<rows>(p, p.row_begin, pass),
                                            p.row_begin, col, pass, end, fetch);
    }
  }
};

// REQUIRES: at most four rows.
template <class Source, class P>
void matmul_lines(const MatmulPiece& p) {
  switch (p.row_end - p.row_begin) {
    case 0: return;
    case 1: return FewRows<Source, P, 1>::run(p);
    case 2: return FewRows<Source, P, 2>::run(p);
    case 3: return FewRows<Source, P, 3>::run(p);
    default: return FewRows<Source, P, 4>::run(p);
  }
}

// The most packed rows whose pass stays in the first-level cache, and its elements.
inline constexpr std::int64_t kLinesRows = 16;
inline constexpr std::int64_t kLinesElements = kLinesRows * kPairsPass;

// Packed rows of x in groups of eight, by two columns: a line is widened once for eight rows. Rows
// whose passes do not fit into the first-level cache together take one pass after the other, each
// by all columns of the piece. `P` has passes of kPairsPass.
template <class Source, class P>
class PackedLines {
 public:
  explicit PackedLines(const MatmulPiece& p) : p_(p), source_(p), input_(p) {}

  void run() {
    input_.each_part([this](const PackedPart& part) { multiply(part); });
    if (p_.bias != nullptr) add_bias<Avx512>(p_);
  }

 private:
  static_assert(pass_of<P>() == kPairsPass);
  static constexpr int kRows = 8;
  static constexpr int kCols = 2;

  void multiply(const PackedPart& part) {
    const bool all = part.rows * (part.end - part.k) <= kLinesElements;
    const std::int64_t length = all ? part.end - part.k : kPairsPass;
    for (std::int64_t k = part.k; k < part.end; k += length) {
      multiply(part, k, k + length < part.end ? k + length : part.end);
    }
  }

  // Elements [begin, end) of K.
  void multiply(const PackedPart& part, std::int64_t begin, std::int64_t end) {
    std::int64_t col = p_.col_begin;
    while (col < p_.col_end) {
      const std::int64_t same = source_.same_until(col, p_.col_end);
      source_.begin(col, begin, end);
      for (; col + kCols <= same; col += kCols) multiply_columns<kCols>(part, col, begin, end);
      for (; col < same; ++col) multiply_columns<1>(part, col, begin, end);
    }
  }

  // All rows of a part by some columns.
  template <int cols>
  void multiply_columns(const PackedPart& part, std::int64_t col, std::int64_t begin,
                        std::int64_t end) {
    for (std::int64_t k = begin; k < end; k += kPairsPass) {
      const std::int64_t stop = input_.pass_end(k);
      const std::int64_t lines = (stop - k + kPanelLine - 1) / kPanelLine;
      for (std::int64_t row = 0; row < part.rows; row += kRows) {
        const std::int64_t group = lines * kPackedLineStep;
        const RowsOfPass x{part.pass(k, lines) + row / kPanelRows * group, group};
        with_count<kRows>(part.rows - row, [&](auto rows) {
          multiply_tile<decltype(rows)::value, cols>(x, part.row + row, col, k, stop, row == 0);
        });
      }
    }
  }

  // With `fetch`, the columns behind these are fetched meanwhile.
  template <int rows, int cols>
  void multiply_tile(const RowsOfPass& x, std::int64_t row, std::int64_t col, std::int64_t k,
                     std::int64_t end, bool fetch) {
    const std::int64_t next = col + cols < p_.col_end ? col + cols : col;
    LinesTile<Source, P, rows, cols>::run(source_, p_, x, row, col, k, end, [&](std::int64_t at) {
      if (!fetch) return;
#pragma GCC unroll 2
      for (int c = 0; c < cols; ++c) {
        const std::uint8_t* const line = source_.place(next + c) + Source::bytes(at);
#pragma GCC unroll 2
        for (std::int64_t i = 0; i < Source::kBytes; i += 64) prefetch_near(line + i);
      }
    });
  }

  const MatmulPiece& p_;
  Source source_;
  const PackedRows<Avx512Bf16, true> input_;
};

// REQUIRES: pack_panels() packed x, at most kLinesRows rows.
template <class Source, class P>
void matmul_packed_lines(const MatmulPiece& p) {
  PackedLines<Source, P>(p).run();
}

}  // namespace sluice::kernels
