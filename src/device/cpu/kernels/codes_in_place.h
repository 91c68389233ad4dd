// Products of a few rows of x in INT8 with a weight in INT8 whose columns are read where they lie,
// on units that add four products of bytes a lane (VNNI). Few rows wait for memory, so the weight
// is read once, about in the order in which it lies there, and fetched at a steady distance ahead.
//
// Tiles are four rows by six columns, in passes along K: a pass of the tile's columns stays in the
// first-level cache while all rows pass by. Lanes are along K, and are added once for all of it.
// Sums are exact: their order does not matter, and results have the bits of DotTile in matmul.h.
//
// `P`: a policy of matmul.h, of one instruction set. Included by kernels_avx512_vnni.cpp only; see
// simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/packed_rows.h"
#include "device/cpu/kernels/tiles_ahead.h"

namespace sluice::kernels {

template <class P>
class CodesInPlace {
 public:
  // More rows are faster from a panel (quad_products.h).
  static constexpr std::int64_t kMostRows = kCodePassRows - 1;

  // Fewer columns than a tile's are left to others.
  static bool takes(const MatmulPiece& p) {
    const std::int64_t rows = p.row_end - p.row_begin;
    return rows <= kMostRows &&
           panel_groups(rows) * kRows * lines_of(p.depth) * kLine <= kPackedBytes &&
           p.col_end - p.col_begin >= kCols;
  }

  // REQUIRES: takes(p).
  explicit CodesInPlace(const MatmulPiece& p)
      : p_(p),
        rows_(p.row_end - p.row_begin),
        groups_(panel_groups(rows_)),
        lines_(lines_of(p.depth)),
        whole_(p.depth / kLine),
        packed_(reinterpret_cast<std::int8_t*>(p.wide)),
        sums_(packed_ + kPackedBytes) {}

  void run() {
    pack();
    const PlacedColumns columns{.first = static_cast<const char*>(p_.weight),
                                .stride = p_.weight_stride,
                                .col_begin = p_.col_begin,
                                .col_end = p_.col_end,
                                .begin = 0,
                                .end = p_.depth,
                                .pass = kPass * kLine,
                                .next = static_cast<const char*>(p_.next_weight)};
    TilesAhead ahead(columns, groups_);
    ahead.fetch((lines_ < kPass ? lines_ : kPass) * kCols + kLead);
    for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kCols) {
      // The last tile begins earlier: some of its columns are multiplied again.
      multiply_tile(col + kCols <= p_.col_end ? col : p_.col_end - kCols, ahead);
    }
    if (p_.bias != nullptr) add_bias<S>(p_);
  }

 private:
  using S = typename P::Simd;
  using Sum = typename P::Sum;
  static constexpr int kRows = kPanelRows;
  static constexpr int kCols = kPanelCols;
  static constexpr std::int64_t kLine = 64;  // codes, or bytes
  static constexpr std::int64_t kLineStep = kRows * kLine;
  // Lines of a pass, and how far the weight is fetched ahead of the next tile's.
  static constexpr std::int64_t kPass = 32;
  static constexpr std::int64_t kLead = 24;
  // The memory of a piece: packed rows, and the sums of a tile of columns.
  static constexpr std::int64_t kPackedBytes = std::int64_t{1} << 20;
  static constexpr std::int64_t kGroupSums = kRows * kCols * kLine;
  static_assert(kPackedBytes + panel_groups(kMostRows) * kGroupSums <= kManyFloats * 4);

  static constexpr std::int64_t lines_of(std::int64_t depth) { return (depth + kLine - 1) / kLine; }

  // A line of codes is packed as one of BF16, which has as many bytes. x has zeros behind its last
  // element. Rows behind the last one are any numbers: they are multiplied and not stored.
  void pack() {
    pack_pass<S>(static_cast<const std::uint16_t*>(p_.x) + p_.row_begin * p_.x_stride / 2,
                 p_.x_stride / 2, rows_, 0, lines_ * kPanelLine,
                 reinterpret_cast<std::uint16_t*>(packed_));
  }

  void multiply_tile(std::int64_t col, TilesAhead& ahead) {
    const std::int8_t* const weight =
        static_cast<const std::int8_t*>(p_.weight) + col * p_.weight_stride;
    for (std::int64_t line = 0; line < lines_; line += kPass) {
      const std::int64_t end = line + kPass < lines_ ? line + kPass : lines_;
      const std::int8_t* x = packed_ + line * kLineStep;
      std::int8_t* sums = sums_;
      for (std::int64_t g = 0; g < groups_; ++g, x += lines_ * kLineStep, sums += kGroupSums) {
        if (line == 0) {
          multiply_pass<true>(x, weight, line, end, sums, ahead);
        } else {
          multiply_pass<false>(x, weight, line, end, sums, ahead);
        }
      }
    }
    float scales[kCols];
    for (int c = 0; c < kCols; ++c) {
      scales[c] = scale_of_column(p_, col + c);
    }
    for (std::int64_t g = 0; g < groups_; ++g) {
      store(sums_ + g * kGroupSums, g * kRows, col, scales);
    }
  }

  // Adds lines [line, end) of a group of rows to its sums.
  template <bool first>
  SLUICE_INLINE void multiply_pass(const std::int8_t* x, const std::int8_t* weight,
                                   std::int64_t line, std::int64_t end, std::int8_t* kept,
                                   TilesAhead& ahead) {
    Sum sums[kRows][kCols];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) {
        sums[r][c] = first ? Sum{} : reinterpret_cast<Sum>(_mm512_load_si512(kept + place(r, c)));
      }
    }
    TilesAhead here = ahead;  // in registers
    const std::int8_t* w = weight + line * kLine;
    for (const std::int64_t whole = end < whole_ ? end : whole_; line < whole;
         ++line, x += kLineStep, w += kLine) {
      here.step();
      add_line(x, w, sums);
    }
    ahead = here;
    if (line < end) add_line(x, w, sums, static_cast<int>(p_.depth - line * kLine));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) {
        _mm512_store_si512(kept + place(r, c), reinterpret_cast<__m512i>(sums[r][c]));
      }
    }
  }

  static constexpr std::int64_t place(int r, int c) { return (r * kCols + c) * kLine; }

  // A line, or its first `count` codes.
  template <class... Count>
  SLUICE_INLINE void add_line(const std::int8_t* x, const std::int8_t* w, Sum (&sums)[kRows][kCols],
                              Count... count) const {
    typename P::Vector xs[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) xs[r] = P::template load_x<0>(x + r * kLine);
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) {
      const auto column = P::template load_w<0>(w + c * p_.weight_stride, count...);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][c] = P::multiply_add(xs[r], column, sums[r][c]);
    }
  }

  // Adds the lanes of a group's sums and stores them. A function of its own: inlined, it takes
  // registers from the products.
  __attribute__((noinline)) void store(const std::int8_t* sums, std::int64_t row, std::int64_t col,
                                       const float* scales) const {
    __m512i quarters[kCols];
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) {
      const auto sum = [&](int r) { return _mm512_load_si512(sums + place(r, c)); };
      quarters[c] = S::quarters_of_integers(sum(0), sum(1), sum(2), sum(3));
    }
    const __m512i four = S::lanes_of_integers(quarters[0], quarters[1], quarters[2], quarters[3]);
    const __m512i two = S::lanes_of_integers(quarters[4], quarters[5], quarters[4], quarters[5]);
    alignas(64) std::int32_t lanes[2][4 * kRows];
    _mm512_store_si512(lanes[0], four);
    _mm512_store_si512(lanes[1], two);
    const int used = rows_ - row < kRows ? static_cast<int>(rows_ - row) : kRows;
    for (int r = 0; r < used; ++r) {
      const QuantizedRow x = p_.x_rows[p_.row_begin + row + r];
      float* const out = p_.out + (p_.row_begin + row + r) * p_.out_stride + col;
      const __m128i offset = _mm_set1_epi32(P::kOffset * x.sum);
      const __m128 scale = _mm_set1_ps(x.scale);
      const auto value = [&](const std::int32_t* from, __m128 w) {
        const __m128i sum =
            _mm_sub_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)), offset);
        return _mm_mul_ps(_mm_cvtepi32_ps(sum), _mm_mul_ps(scale, w));
      };
      _mm_storeu_ps(out, value(lanes[0] + 4 * r, _mm_loadu_ps(scales)));
      const __m128 last = value(lanes[1] + 4 * r, _mm_setr_ps(scales[4], scales[5], 0, 0));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 4), _mm_castps_si128(last));
    }
  }

  const MatmulPiece& p_;
  const std::int64_t rows_;
  const std::int64_t groups_;
  const std::int64_t lines_;
  const std::int64_t whole_;  // lines
  std::int8_t* const packed_;
  std::int8_t* const sums_;
};

}  // namespace sluice::kernels
