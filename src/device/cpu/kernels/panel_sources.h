// Columns of a weight for panels: FP8 widened to BF16 (matmul_panels.h), and BF16 as it is, for the
// tiles that matmul_in_place.h does not multiply where they lie.
// Included by kernels_avx512_bf16.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/panel_tile.h"
#include "device/cpu/kernels/simd_avx512_bf16.h"
#include "device/cpu/kernels/widen_f8.h"

namespace sluice::kernels {

// `S`: the instruction set, of which no shared code may be linked elsewhere.
template <class S>
class PanelOfBf16 {
 public:
  using Simd = S;
  explicit PanelOfBf16(const MatmulPiece& p) : p_(p) {}

  const std::uint8_t* place(std::int64_t col, std::int64_t k) const {
    return reinterpret_cast<const std::uint8_t*>(row(col) + k);
  }
  SLUICE_INLINE void fill(std::int64_t col, std::int64_t k, std::int64_t end,
                          std::uint16_t* to) const {
    const std::uint16_t* const from = row(col);
    for (; k + kPanelLine <= end; k += kPanelLine, to += kPanelLineStep) {
      _mm512_store_si512(to, S::load_pairs(from + k));
    }
    if (k < end) _mm512_store_si512(to, S::load_pairs(from + k, static_cast<int>(end - k)));
  }

 private:
  const std::uint16_t* row(std::int64_t col) const {
    return static_cast<const std::uint16_t*>(p_.weight) + col * p_.weight_stride;
  }

  const MatmulPiece& p_;
};

// Rows of one block of scales share its table.
template <class S>
class PanelOfF8 {
 public:
  using Simd = S;
  explicit PanelOfF8(const MatmulPiece& p) : p_(p) {}

  const std::uint8_t* place(std::int64_t col, std::int64_t k) const {
    return static_cast<const std::uint8_t*>(p_.weight) + col * p_.weight_stride + k;
  }
  void fill(std::int64_t col, std::int64_t k, std::int64_t end, std::uint16_t* to) {
    fill(col, k, end, to, kPanelLineStep);
  }
  // Whole lines, `step` elements apart. At most kPairsPass elements.
  void fill(std::int64_t col, std::int64_t k, std::int64_t end, std::uint16_t* to,
            std::int64_t step) {
    const std::int64_t block = p_.scales.block_cols;
    if (block % kPanelLine == 0 || block >= p_.depth) return widen(col, k, end, to, step);
    // Blocks begin within a line.
    widen(col, k, end, line_, kPanelLine);
    const std::int64_t left = (end - k) % kPanelLine;
    for (std::int64_t i = 0; i < end - k; i += kPanelLine, to += step) {
      const bool last = i + kPanelLine > end - k;
      _mm512_store_si512(
          to, last ? S::load_pairs(line_ + i, static_cast<int>(left)) : S::load_pairs(line_ + i));
    }
  }

 private:
  using Widen = WidenF8<S>;
  static constexpr int kTables = kPairsPass / 128 + 1;  // blocks of 128 in a pass, and one more

  // Each block writes what fills up its last line, which the next block writes again.
  SLUICE_INLINE void widen(std::int64_t col, std::int64_t k, std::int64_t end, std::uint16_t* to,
                           std::int64_t step) {
    const std::int64_t block = p_.scales.block_cols;
    const float* const scales =
        p_.scales.values + col / p_.scales.block_rows * p_.scales.stride + k / block;
    const bool known = scales == scales_;
    const std::uint8_t* const codes = place(col, 0);
    int index = 0;
    for (std::int64_t at = k; at < end; ++index) {
      const std::int64_t border = (k / block + index + 1) * block;
      const std::int64_t stop = border < end ? border : end;
      typename Widen::Table& table = tables_[index < kTables ? index : kTables - 1];
      if (!known || index >= kTables - 1) table = Widen::table_of(scales[index]);
      const std::int64_t i = at - k;
      Widen::widen(table, codes + at, stop - at, to + i / kPanelLine * step + i % kPanelLine, step);
      at = stop;
    }
    scales_ = scales;
  }

  const MatmulPiece& p_;
  const float* scales_ = nullptr;  // that the tables are of
  typename Widen::Table tables_[kTables];
  alignas(64) std::uint16_t line_[kPairsPass + 2 * kPanelLine];
};

}  // namespace sluice::kernels
