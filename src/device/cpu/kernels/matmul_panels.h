// Products of x in BF16 on units that multiply pairs of BF16. Rows of x are packed four at a time,
// and six columns of the weight are put (widened, where they are in another type) into a panel that
// stays in the first-level cache: K runs in passes, and the rows of x that a pass needs stay in the
// second-level cache. Rows in place would share sets of the caches, as their distance is a power
// of two as a rule.
//
// The order of sums: each pass of kPairsPass elements is summed as DotBf16Pairs does, over lanes
// too, and the passes are added in order. DotTile does the same for policies with a kPass, so a
// row's bits do not depend on the kernel. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

inline constexpr int kPanelRows = 4;
inline constexpr int kPanelCols = 6;
inline constexpr std::int64_t kPanelLine = 32;  // elements
inline constexpr std::int64_t kPanelLineStep = kPanelCols * kPanelLine;
inline constexpr std::int64_t kPackedLineStep = kPanelRows * kPanelLine;

// The columns of a tile, from a panel.
struct PanelColumns {
  SLUICE_INLINE __m512i line(int c) const { return _mm512_load_si512(panel + c * kPanelLine); }
  SLUICE_INLINE void step() { panel += kPanelLineStep; }

  const std::uint16_t* panel;
};

// Fetches the next group of packed rows, line by line.
template <int rows>
struct GroupAhead {
  SLUICE_INLINE void step() {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      prefetch_near(x + r * kPanelLine);
    }
    x += kPackedLineStep;
  }

  const std::uint16_t* x;
};

// A register tile over one pass: `rows` rows of a packed group by kPanelCols columns.
template <class S, int rows>
struct PanelTile {
  using F = typename S::F;

  // Adds to `out` unless `first`. `columns`: line(c) is the next line of column c, step() goes to
  // the lines behind. ahead.step() is called for each line and may fetch something.
  template <class Columns, class Ahead>
  SLUICE_INLINE static void run(const std::uint16_t* x, Columns columns, std::int64_t lines,
                                Ahead& ahead, bool first, int cols, float* out,
                                std::int64_t stride) {
    F sums[kPanelRows][kPanelCols];
#pragma GCC unroll 4
    for (int r = 0; r < kPanelRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kPanelCols; ++c) sums[r][c] = S::zero();
    }
    Ahead here = ahead;  // in registers
    for (const std::uint16_t* const end = x + lines * kPackedLineStep; x != end;
         x += kPackedLineStep, columns.step()) {
      __m512i xs[rows];
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) xs[r] = _mm512_load_si512(x + r * kPanelLine);
      here.step();
#pragma GCC unroll 8
      for (int c = 0; c < kPanelCols; ++c) {
        const __m512i w = columns.line(c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) sums[r][c] = S::add_pairs(xs[r], w, sums[r][c]);
      }
    }
    ahead = here;
    store(sums, first, cols, out, stride);
  }

 private:
  // Adds lanes by the tree of DotTile.
  SLUICE_INLINE static void store(const F (&sums)[kPanelRows][kPanelCols], bool first, int cols,
                                  float* out, std::int64_t stride) {
    const SumsOfRows<S> all(sums);
    const auto four_mask = static_cast<__mmask8>((1U << (cols < 4 ? cols : 4)) - 1U);
    const auto two_mask = static_cast<__mmask8>((1U << (cols < 4 ? 0 : cols - 4)) - 1U);
    put<0>(all.four, all.two, first, cols, four_mask, two_mask, out);
    if constexpr (rows > 1)
      put<1>(all.four, all.two, first, cols, four_mask, two_mask, out + stride);
    if constexpr (rows > 2)
      put<2>(all.four, all.two, first, cols, four_mask, two_mask, out + 2 * stride);
    if constexpr (rows > 3)
      put<3>(all.four, all.two, first, cols, four_mask, two_mask, out + 3 * stride);
  }

  template <int row>
  SLUICE_INLINE static void put(F four, F two, bool first, int cols, __mmask8 four_mask,
                                __mmask8 two_mask, float* out) {
    __m128 a = _mm512_extractf32x4_ps(four, row);
    __m128 b = _mm512_extractf32x4_ps(two, row);
    if (cols == kPanelCols) {
      if (!first) {
        a = _mm_add_ps(_mm_loadu_ps(out), a);
        b = _mm_add_ps(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<__m128i*>(out + 4))), b);
      }
      _mm_storeu_ps(out, a);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 4), _mm_castps_si128(b));
      return;
    }
    if (!first) {
      a = _mm_add_ps(_mm_maskz_loadu_ps(four_mask, out), a);
      b = _mm_add_ps(_mm_maskz_loadu_ps(two_mask, out + 4), b);
    }
    _mm_mask_storeu_ps(out, four_mask, a);
    _mm_mask_storeu_ps(out + 4, two_mask, b);
  }
};

// The rows of x of a piece, packed in parts.
template <class S>
class PackedRows {
 public:
  // Rows of x beside which a panel's filling is small, and which fit into a cache of 1 MiB with a
  // pass of a piece's columns.
  static constexpr std::int64_t kChunk = 256;
  static constexpr std::int64_t kElements = kChunk * kPairsPass;

  explicit PackedRows(const MatmulPiece& p)
      : p_(p), packed_(reinterpret_cast<std::uint16_t*>(p.wide)) {}

  // Calls multiply(row, rows, k, end) for parts of x whose rows [row, row + rows) and elements
  // [k, end) are packed.
  template <class Multiply>
  void each_part(const Multiply& multiply) const {
    for (std::int64_t row = p_.row_begin; row < p_.row_end; row += kChunk) {
      const std::int64_t rows = row + kChunk < p_.row_end ? kChunk : p_.row_end - row;
      // Few rows: all passes of a tile of columns follow each other, so that rows of the weight are
      // read from their beginning to their end.
      const std::int64_t step =
          kElements / (groups_of(rows) * kPanelRows * kPairsPass) * kPairsPass;
      for (std::int64_t k = 0; k < p_.depth; k += step) {
        const std::int64_t end = k + step < p_.depth ? k + step : p_.depth;
        for (std::int64_t from = k; from < end; from += kPairsPass) {
          pack(row, rows, from, pass_end(from),
               packed_ + groups_of(rows) * kPanelRows * (from - k));
        }
        multiply(row, rows, k, end);
      }
    }
  }

  // A pass that begins `k` elements behind the part.
  const std::uint16_t* pass(std::int64_t rows, std::int64_t k) const {
    return packed_ + groups_of(rows) * kPanelRows * k;
  }
  std::int64_t pass_end(std::int64_t k) const {
    return k + kPairsPass < p_.depth ? k + kPairsPass : p_.depth;
  }
  static std::int64_t groups_of(std::int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }
  // The memory behind the packed rows: one panel.
  std::uint16_t* panel() const { return packed_ + kElements; }

 private:
  static_assert((kElements + kPanelCols * kPairsPass) * 2 <= kManyFloats * 4);

  void pack(std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t end,
            std::uint16_t* to) const {
    const std::int64_t lines = (end - k + kPanelLine - 1) / kPanelLine;
    const std::int64_t whole = (end - k) / kPanelLine;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto* from = static_cast<const std::uint16_t*>(p_.x) + (row + r) * p_.x_stride + k;
      std::uint16_t* line =
          to + r / kPanelRows * lines * kPackedLineStep + r % kPanelRows * kPanelLine;
      for (std::int64_t i = 0; i < whole; ++i, line += kPackedLineStep) {
        _mm512_store_si512(line, S::load_pairs(from + i * kPanelLine));
      }
      if (whole == lines) continue;
      const auto left = static_cast<int>(end - k - whole * kPanelLine);
      _mm512_store_si512(line, S::load_pairs(from + whole * kPanelLine, left));
    }
  }

  const MatmulPiece& p_;
  std::uint16_t* const packed_;
};

// `Source`: what the weight is (panel_sources.h). place(col, k) is the address of element k of
// column `col`, or where the column ends. fill(col, k, end, to) writes elements [k, end) of it in
// BF16, in lines kPanelLineStep elements apart. The rest of the last line may be any numbers:
// zeros multiply them.
template <class S, class Source>
class Panels {
 public:
  Panels(const MatmulPiece& p, Source& source)
      : p_(p), source_(source), input_(p), panel_(input_.panel()) {}

  void run() {
    input_.each_part([this](std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t end) {
      multiply(row, rows, k, end);
    });
    if (p_.bias != nullptr) add_bias<S>(p_);
  }

 private:
  void multiply(std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t end) {
    const std::int64_t groups = input_.groups_of(rows);
    for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kPanelCols) {
      const auto cols =
          static_cast<int>(col + kPanelCols < p_.col_end ? kPanelCols : p_.col_end - col);
      for (std::int64_t k = begin; k < end; k += kPairsPass) {
        const std::int64_t stop = input_.pass_end(k);
        const std::int64_t lines = (stop - k + kPanelLine - 1) / kPanelLine;
        // The products of one group are short: there a part is fetched beside each column's
        // filling.
        const std::int64_t parts = groups > 1 ? groups : cols;
        FetchInParts ahead = stop < end ? fetch_ahead(col, stop, parts)
                                        : fetch_ahead(col + kPanelCols, begin, parts);
        for (int c = 0; c < cols; ++c) {
          source_.fill(col + c, k, stop, panel_ + c * kPanelLine);
          if (groups == 1) ahead.fetch();
        }
        const std::uint16_t* const x = input_.pass(rows, k - begin);
        for (std::int64_t group = 0; group < groups; ++group) {
          if (groups > 1) ahead.fetch();
          const std::uint16_t* const from = x + group * lines * kPackedLineStep;
          const std::uint16_t* const next = group + 1 < groups ? from + lines * kPackedLineStep : x;
          const std::int64_t first = row + group * kPanelRows;
          multiply_group(row + rows - first, from, lines, next, k == 0, cols,
                         p_.out + first * p_.out_stride + col);
        }
      }
    }
  }

  SLUICE_INLINE void multiply_group(std::int64_t rows, const std::uint16_t* x, std::int64_t lines,
                                    const std::uint16_t* next, bool first, int cols,
                                    float* out) const {
    switch (rows) {
      case 1: return multiply_tile<1>(x, lines, next, first, cols, out);
      case 2: return multiply_tile<2>(x, lines, next, first, cols, out);
      case 3: return multiply_tile<3>(x, lines, next, first, cols, out);
      default: return multiply_tile<4>(x, lines, next, first, cols, out);
    }
  }

  template <int rows>
  void multiply_tile(const std::uint16_t* x, std::int64_t lines, const std::uint16_t* next,
                     bool first, int cols, float* out) const {
    GroupAhead<rows> ahead{next};
    PanelTile<S, rows>::run(x, PanelColumns{panel_}, lines, ahead, first, cols, out, p_.out_stride);
  }

  // Fetches what the panel at a column and a place along K is filled from.
  FetchInParts fetch_ahead(std::int64_t col, std::int64_t k, std::int64_t parts) const {
    const std::int64_t left = p_.col_end - col;
    if (left <= 0) return {};
    const std::uint8_t* const first = source_.place(col, k);
    return {first, source_.place(col, input_.pass_end(k)) - first,
            source_.place(col + 1, k) - first, left < kPanelCols ? left : kPanelCols, parts};
  }

  const MatmulPiece& p_;
  Source& source_;
  const PackedRows<S> input_;
  std::uint16_t* const panel_;
};

template <class Source>
void matmul_panels(const MatmulPiece& p) {
  Source source(p);
  Panels<typename Source::Simd, Source>(p, source).run();
}

}  // namespace sluice::kernels
