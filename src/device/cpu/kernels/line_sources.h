// The weights that matmul_lines.h widens in registers: FP8. All is inline: shared code may not have
// this instruction set (check_symbols.cmake). Included by kernels_avx512_bf16.cpp only; see
// simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_lines.h"
#include "device/cpu/kernels/widen_f8.h"

namespace sluice::kernels {

// FP8 (E4M3) whose scales are of blocks of whole groups. Rows of one block share their tables,
// which lie in the piece's scratch memory.
class LinesOfF8 {
 public:
  static constexpr int kLines = 4;
  static constexpr std::int64_t kBytes = 128;

  // Blocks of few rows would make as many tables as products.
  SLUICE_INLINE static bool takes(const MatmulPiece& p) {
    const std::int64_t block = p.scales.block_cols;
    if (p.scales.block_rows < kLeastRows) return false;
    if (p.depth > (kBytes << 16)) return false;
    return block >= p.depth || (block % kBytes == 0 && p.depth <= kTables * block);
  }

  SLUICE_INLINE explicit LinesOfF8(const MatmulPiece& p)
      : p_(p),
        tables_(reinterpret_cast<Table*>(p.wide)),
        block_(p.scales.block_cols < p.depth ? p.scales.block_cols : p.depth),
        inverse_(((std::int64_t{1} << 32) - 1) / ((block_ + kBytes - 1) / kBytes) + 1) {}
  SLUICE_INLINE static std::int64_t bytes(std::int64_t count) { return count; }
  SLUICE_INLINE const std::uint8_t* place(std::int64_t col) const {
    return static_cast<const std::uint8_t*>(p_.weight) + col * p_.weight_stride;
  }
  SLUICE_INLINE std::int64_t same_until(std::int64_t col, std::int64_t end) const {
    const std::int64_t border = (col / p_.scales.block_rows + 1) * p_.scales.block_rows;
    return border < end ? border : end;
  }
  // For elements [k, end) of the columns up to same_until().
  SLUICE_INLINE void begin(std::int64_t col, std::int64_t k, std::int64_t end) {
    const float* const scales = p_.scales.values + col / p_.scales.block_rows * p_.scales.stride;
    if (scales == scales_ && k == from_) return;
    scales_ = scales;
    from_ = k;
    for (std::int64_t i = k / block_; i * block_ < end; ++i) {
      tables_[i] = Widen::table_of(scales[i]);
    }
  }

  struct Group {
    const std::uint8_t* codes;
    const WidenF8<Avx512Bf16>::Table* table;

    SLUICE_INLINE PairOfLines pair(int i) const {
      const auto both = Widen::widen(*table, _mm512_loadu_si512(codes + 64 * i));
      return {both.first, both.second};
    }
  };
  SLUICE_INLINE void group(const std::uint8_t* codes, std::int64_t k, Group& g) const {
    g.codes = codes;
    g.table = tables_ + (((k / kBytes) * inverse_) >> 32);
  }

 private:
  using Widen = WidenF8<Avx512Bf16>;
  using Table = Widen::Table;
  static constexpr std::int64_t kLeastRows = 32;
  static constexpr std::int64_t kTables = 128;
  static_assert(kTables * sizeof(Table) <= kManyFloats * sizeof(float));

  const MatmulPiece& p_;
  Table* const tables_;
  const std::int64_t block_;
  // 2^32 by the groups of a block, rounded up: a core divides slowly. Exact for less than 2^16
  // groups.
  const std::int64_t inverse_;
  const float* scales_ = nullptr;  // that the tables are of, from from_ on
  std::int64_t from_ = 0;
};

}  // namespace sluice::kernels
