// Products of x in BF16 and a weight that is widened to BF16 first (FP8), on units that multiply
// pairs of BF16. Rows of x are packed four at a time, and six columns of the weight are widened
// into a panel that stays in the first-level cache: K runs in passes, and the rows of x that a pass
// needs stay in the second-level cache. Rows in place would share sets of the caches, as their
// distance is a power of two as a rule.
//
// Sums are added in the order of panel_tile.h. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/packed_rows.h"
#include "device/cpu/kernels/panel_tile.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

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

// `Source`: what the weight is (panel_sources.h). place(col, k) is the address of element k of
// column `col`, or where the column ends. fill(col, k, end, to) writes elements [k, end) of it in
// BF16, in lines kPanelLineStep elements apart. The rest of the last line may be any numbers:
// zeros multiply them.
template <class S, class Source, bool shared>
class Panels {
 public:
  Panels(const MatmulPiece& p, Source& source)
      : p_(p), source_(source), input_(p), panel_(input_.panel()) {}

  void run() {
    input_.each_part([this](const PackedPart& part) { multiply(part); });
    if (p_.bias != nullptr) add_bias<S>(p_);
  }

 private:
  void multiply(const PackedPart& part) {
    const std::int64_t groups = part.groups();
    for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kPanelCols) {
      const auto cols =
          static_cast<int>(col + kPanelCols < p_.col_end ? kPanelCols : p_.col_end - col);
      for (std::int64_t k = part.k; k < part.end; k += kPairsPass) {
        const std::int64_t stop = input_.pass_end(k);
        const std::int64_t lines = (stop - k + kPanelLine - 1) / kPanelLine;
        // The products of one group are short: there a part is fetched beside each column's
        // filling.
        const std::int64_t parts = groups > 1 ? groups : cols;
        FetchInParts ahead = stop < part.end ? fetch_ahead(col, stop, parts)
                                             : fetch_ahead(col + kPanelCols, part.k, parts);
        for (int c = 0; c < cols; ++c) {
          source_.fill(col + c, k, stop, panel_ + c * kPanelLine);
          if (groups == 1) ahead.fetch();
        }
        const std::uint16_t* const x = part.pass(k, lines);
        for (std::int64_t group = 0; group < groups; ++group) {
          if (groups > 1) ahead.fetch();
          const std::uint16_t* const from = x + group * lines * kPackedLineStep;
          const std::uint16_t* const next = group + 1 < groups ? from + lines * kPackedLineStep : x;
          const std::int64_t first = part.row + group * kPanelRows;
          multiply_group(part.row + part.rows - first, from, lines, next, k == 0, cols,
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
  const PackedRows<S, shared> input_;
  std::uint16_t* const panel_;
};

// `shared`: x is packed by pack_panels().
template <class Source, bool shared = false>
void matmul_panels(const MatmulPiece& p) {
  Source source(p);
  Panels<typename Source::Simd, Source, shared>(p, source).run();
}

}  // namespace sluice::kernels
