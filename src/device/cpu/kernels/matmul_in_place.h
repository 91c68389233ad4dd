// Products of x and a weight in BF16 on units that multiply pairs of BF16. Columns of the weight
// are read where they lie.
//
// Few rows wait for memory, so the weight is read once, about in the order in which it lies there,
// and fetched at a steady distance ahead of the products. A core has too few outstanding misses of
// its own to read at the speed of memory: hardware prefetching has to help, and it follows one run
// of lines best.
//
// Rows of x that stay in the first-level cache take one column after the other. More rows take
// tiles of columns, in passes: a pass of a tile's columns stays in the first-level cache while four
// rows of x after the other pass by, which come from the second-level cache.
//
// A file may begin its weights anywhere, mostly not at a line of memory. Each load of a column is
// one of two lines then, so many rows multiply a copy of the tile's columns instead.
//
// Sums are added in the order of panel_tile.h. Included by kernels_*.cpp only; see
// simd_avx512.h.
#pragma once

#include "device/cpu/kernels/late_tiles.h"
#include "device/cpu/kernels/packed_rows.h"
#include "device/cpu/kernels/panel_sources.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/tiles_ahead.h"

namespace sluice::kernels {

// The most packed rows of x that take one column after the other, and their elements.
inline constexpr int kColumnRows = 8;
inline constexpr std::int64_t kColumnElements = 16 << 10;
// How far tiles of columns are fetched ahead of the next tile's pass, in lines of memory.
inline constexpr std::int64_t kTileLead = 24;
// From this many rows on, lanes are added late (late_tiles.h), and columns that do not lie in lines
// of memory are copied. Fewer rows have more of the weight to fetch or to copy beside each tile,
// and gain nothing.
inline constexpr std::int64_t kLateRows = 192;

// One row, in place, by all columns of a piece.
template <class P>
void multiply_row(const MatmulPiece& p) {
  using Tile = DotTile<P, 1, 1>;
  using W = typename P::W;
  constexpr std::int64_t kLead = kFewLead * kPanelLine;
  const typename P::X* const x[1] = {static_cast<const typename P::X*>(p.x) +
                                     p.row_begin * p.x_stride};
  const W* const weight = static_cast<const W*>(p.weight);
  const W* const weight_end = weight + (p.col_end - 1) * p.weight_stride + p.depth;
  for (std::int64_t col = p.col_begin; col < p.col_end; ++col) {
    const W* const w[1] = {weight + col * p.weight_stride};
    for (std::int64_t begin = 0; begin < p.depth; begin += P::kPass) {
      const std::int64_t end = begin + P::kPass < p.depth ? begin + P::kPass : p.depth;
      typename P::Sum sums[1][1] = {};
      std::int64_t k = begin;
      for (; k + P::kStep <= end; k += P::kStep) {
        if (weight_end - w[0] > k + kLead) {
          prefetch_near(w[0] + k + kLead);
        }
        Tile::phases(x, w, k, sums);
      }
      if (k < end) Tile::phases(x, w, k, sums, static_cast<int>(end - k));
      Tile::add_to(sums, p, p.row_begin, col, begin > 0);
    }
  }
}

// The columns of a tile from where they lie.
struct ColumnsInPlace {
  SLUICE_INLINE __m512i line(int c) const { return _mm512_loadu_si512(weight + c * stride); }
  SLUICE_INLINE void step() { weight += kPanelLine; }

  const std::uint16_t* weight;
  std::int64_t stride;
};

// `P`: the policy whose order of sums `S` has, the instruction set, of which no shared code may be
// linked elsewhere. `shared`: x is packed by pack_panels().
template <class P, class S, bool shared>
class ProductsInPlace {
 public:
  explicit ProductsInPlace(const MatmulPiece& p)
      : p_(p), source_(p), input_(p), panel_(input_.panel()) {}

  void run() {
    input_.each_part([this](const PackedPart& part) {
      // So few elements are one part.
      if (part.rows <= kColumnRows && part.rows * p_.depth <= kColumnElements) {
        return multiply_columns(part);
      }
      multiply_tiles(part);
    });
  }

 private:
  void multiply_columns(const PackedPart& part) {
    with_count<kColumnRows>(part.rows,
                            [&](auto rows) { multiply_columns<decltype(rows)::value>(part); });
  }

  template <int rows>
  void multiply_columns(const PackedPart& part) {
    constexpr std::int64_t kLead = kFewLead * kPanelLine;
    const std::uint16_t* const weight = place(0, 0);
    const std::uint16_t* const weight_end = place(p_.col_end - 1, p_.depth);
    for (std::int64_t col = p_.col_begin; col < p_.col_end; ++col) {
      const std::uint16_t* w = weight + col * p_.weight_stride;
      for (std::int64_t k = 0; k < p_.depth; k += kPairsPass) {
        const std::int64_t left = input_.pass_end(k) - k;
        const std::int64_t lines = (left + kPanelLine - 1) / kPanelLine;
        const std::uint16_t* x = part.pass(k, lines);
        const std::int64_t group = lines * kPackedLineStep;
        typename S::F sums[rows][1] = {};
        const auto multiply = [&](__m512i line) {
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            const auto* at = x + r / kPanelRows * group + r % kPanelRows * kPanelLine;
            sums[r][0] = S::add_pairs(_mm512_load_si512(at), line, sums[r][0]);
          }
          x += kPackedLineStep;
        };
        for (const std::uint16_t* const whole = w + left / kPanelLine * kPanelLine; w != whole;
             w += kPanelLine) {
          if (weight_end - w > kLead) {
            prefetch_near(w + kLead);
          }
          multiply(S::load_pairs(w));
        }
        if (left % kPanelLine > 0) multiply(S::load_pairs(w, static_cast<int>(left % kPanelLine)));
        DotTile<P, rows, 1>::add_to(sums, p_, part.row, col, k > 0);
      }
    }
  }

  const std::uint16_t* place(std::int64_t col, std::int64_t k) const {
    return reinterpret_cast<const std::uint16_t*>(source_.place(col, k));
  }

  // A part whose lanes are added late has one pass, so a tile whose sums are not yet at their place
  // shares no output with those after it.
  static_assert(2 * kLateRows * kPairsPass > PackedRows<S, shared>::kElements);

  void multiply_tiles(const PackedPart& part) {
    const std::int64_t groups = part.groups();
    const PlacedColumns columns{.first = static_cast<const char*>(p_.weight),
                                .stride = 2 * p_.weight_stride,
                                .col_begin = p_.col_begin,
                                .col_end = p_.col_end,
                                .begin = 2 * part.k,
                                .end = 2 * part.end,
                                .pass = 2 * kPairsPass};
    const bool in_lines = columns.in_lines();
    TilesAhead ahead(columns, groups);
    // A pass of a tile's columns is read from memory while the pass before it is multiplied.
    ahead.fetch((input_.pass_end(part.k) - part.k) / kPanelLine * kPanelCols + kTileLead);
    for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kPanelCols) {
      const int cols =
          p_.col_end - col < kPanelCols ? static_cast<int>(p_.col_end - col) : kPanelCols;
      for (std::int64_t k = part.k; k < part.end; k += kPairsPass) {
        const std::int64_t stop = input_.pass_end(k);
        const std::int64_t lines = (stop - k + kPanelLine - 1) / kPanelLine;
        const bool late = cols == kPanelCols && part.rows >= kLateRows;
        const bool in_place =
            cols == kPanelCols && (stop - k) % kPanelLine == 0 && (in_lines || !late);
        if (!in_place) {
          for (int c = 0; c < cols; ++c) source_.fill(col + c, k, stop, panel_ + c * kPanelLine);
        }
        for (std::int64_t group = 0; group < groups; ++group) {
          const std::uint16_t* const x = part.pass(k, lines) + group * lines * kPackedLineStep;
          const std::int64_t left = part.rows - group * kPanelRows;
          float* const out = p_.out + (part.row + group * kPanelRows) * p_.out_stride + col;
          if (late && left >= kPanelRows && in_place) {
            late_.multiply(x, ColumnsInPlace{place(col, k), p_.weight_stride}, lines, ahead, k == 0,
                           out, p_.out_stride);
          } else if (late && left >= kPanelRows) {
            late_.multiply(x, PanelColumns{panel_}, lines, ahead, k == 0, out, p_.out_stride);
          } else if (in_place) {
            multiply_group(ColumnsInPlace{place(col, k), p_.weight_stride}, left, x, lines, ahead,
                           k == 0, cols, out);
          } else {
            multiply_group(PanelColumns{panel_}, left, x, lines, ahead, k == 0, cols, out);
          }
        }
      }
    }
    late_.finish();
  }

  template <class Columns>
  SLUICE_INLINE void multiply_group(const Columns& columns, std::int64_t rows,
                                    const std::uint16_t* x, std::int64_t lines, TilesAhead& ahead,
                                    bool first, int cols, float* out) const {
    const auto run = [&](auto tile) {
      decltype(tile)::run(x, columns, lines, ahead, first, cols, out, p_.out_stride);
    };
    switch (rows) {
      case 1: return run(PanelTile<S, 1>());
      case 2: return run(PanelTile<S, 2>());
      case 3: return run(PanelTile<S, 3>());
      default: return run(PanelTile<S, 4>());
    }
  }

  const MatmulPiece& p_;
  const PanelOfBf16<S> source_;
  const PackedRows<S, shared> input_;
  std::uint16_t* const panel_;
  LateTiles<S> late_;
};

template <class P, class S, bool shared = false>
void matmul_in_place(const MatmulPiece& p) {
  if (!shared && p.row_end - p.row_begin == 1) {
    multiply_row<P>(p);
  } else {
    ProductsInPlace<P, S, shared>(p).run();
  }
  if (p.bias != nullptr) add_bias<S>(p);
}

}  // namespace sluice::kernels
