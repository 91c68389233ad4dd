// PanelTile: the register tile of products of x in BF16 on units that multiply pairs of BF16: four
// packed rows of x by six columns, over one pass along K.
//
// The order of sums: each pass of kPairsPass elements is summed as DotBf16Pairs does, over lanes
// too, and the passes are added in order. DotTile does the same for policies with a kPass, so a
// row's bits do not depend on the kernel. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"

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
    F sums[kPanelRows][kPanelCols] = {};
    Ahead here = ahead;  // in registers
    for (const std::uint16_t* const end = x + lines * kPackedLineStep; x != end;
         x += kPackedLineStep, columns.step()) {
      here.step();
      add_line(x, columns, sums);
    }
    ahead = here;
    // Lanes are added by the tree of DotTile.
    const SumsOfRows<S> all(sums);
    put(all.four, all.two, first, cols, out, stride);
  }

  // Adds the products of one line.
  template <class Columns>
  SLUICE_INLINE static void add_line(const std::uint16_t* x, const Columns& columns,
                                     F (&sums)[kPanelRows][kPanelCols]) {
    __m512i xs[rows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) xs[r] = _mm512_load_si512(x + r * kPanelLine);
#pragma GCC unroll 8
    for (int c = 0; c < kPanelCols; ++c) {
      const __m512i w = columns.line(c);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[r][c] = S::add_pairs(xs[r], w, sums[r][c]);
    }
  }

  // `four` and `two`: as in SumsOfRows.
  SLUICE_INLINE static void put(F four, F two, bool first, int cols, float* out,
                                std::int64_t stride) {
    const auto four_mask = static_cast<__mmask8>((1U << (cols < 4 ? cols : 4)) - 1U);
    const auto two_mask = static_cast<__mmask8>((1U << (cols < 4 ? 0 : cols - 4)) - 1U);
    put<0>(four, two, first, cols, four_mask, two_mask, out);
    if constexpr (rows > 1) put<1>(four, two, first, cols, four_mask, two_mask, out + stride);
    if constexpr (rows > 2) put<2>(four, two, first, cols, four_mask, two_mask, out + 2 * stride);
    if constexpr (rows > 3) put<3>(four, two, first, cols, four_mask, two_mask, out + 3 * stride);
  }

 private:
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

}  // namespace sluice::kernels
