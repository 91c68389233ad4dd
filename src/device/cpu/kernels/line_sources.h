// The weights that matmul_lines.h widens in registers: blocks of Q4_K and Q6_K, and FP8. All is
// inline: shared code may not have this instruction set (check_symbols.cmake). Included by
// kernels_avx512_bf16.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_lines.h"
#include "device/cpu/kernels/widen_blocks.h"
#include "device/cpu/kernels/widen_f8.h"

namespace sluice::kernels {

// A table of 16 elements, which is there twice: so the fifth bit of an index does not matter, and
// indices need no mask.
SLUICE_INLINE static __m512i twice(__m512 values) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values, values));
}

// Common to weights in blocks.
template <DType dtype, int blocks>
class LinesOfBlocks {
 public:
  static constexpr ElementBlock kBlock = block_of(dtype);
  static constexpr int kLines = static_cast<int>(blocks * kBlock.elements / 32);
  static constexpr std::int64_t kBytes = blocks * kBlock.bytes;
  SLUICE_INLINE explicit LinesOfBlocks(const MatmulPiece& p)
      : weight_(static_cast<const std::uint8_t*>(p.weight)),
        row_bytes_(p.weight_stride / kBlock.elements * kBlock.bytes) {}
  SLUICE_INLINE const std::uint8_t* place(std::int64_t col) const {
    return weight_ + col * row_bytes_;
  }
  SLUICE_INLINE static std::int64_t same_until(std::int64_t /*col*/, std::int64_t end) {
    return end;
  }
  SLUICE_INLINE static void begin(std::int64_t /*col*/) {}
  SLUICE_INLINE static std::int64_t bytes(std::int64_t count) { return bytes_of(dtype, count); }

 private:
  const std::uint8_t* const weight_;
  const std::int64_t row_bytes_;
};

struct LinesOfQ4K : LinesOfBlocks<DType::kQ4K, 1> {
  using LinesOfBlocks::LinesOfBlocks;
  struct Group {
    const std::uint8_t* block;
    alignas(64) float factors[16];  // of 8 groups of 32 elements, then their minima

    SLUICE_INLINE PairOfLines pair(int i) const {
      const __m512i pairs = _mm512_cvtepu8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 16 + 32 * i)));
      return {_mm512_permutexvar_epi16(pairs, table(2 * i)),
              _mm512_permutexvar_epi16(_mm512_srli_epi16(pairs, 4), table(2 * i + 1))};
    }

   private:
    // A factor has 17 bits, so its product with a code is exact: this rounds as two instructions.
    SLUICE_INLINE __m512i table(int i) const {
      const __m512 all = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      return twice(
          _mm512_fmsub_ps(all, _mm512_set1_ps(factors[i]), _mm512_set1_ps(factors[8 + i])));
    }
  };
  SLUICE_INLINE static void group(const std::uint8_t* block, std::int64_t /*k*/, Group& g) {
    g.block = block;
    std::uint32_t words[4];
    BlocksOfQ4K::unpack(block + 4, words);
    const __m128i integers =
        _mm_set_epi64x(static_cast<std::int64_t>(std::uint64_t{words[3]} << 32 | words[2]),
                       static_cast<std::int64_t>(std::uint64_t{words[1]} << 32 | words[0]));
    const __m512 factors =
        _mm512_mask_blend_ps(0xFF00, Avx512::set1_f16(block), Avx512::set1_f16(block + 2));
    _mm512_store_ps(g.factors,
                    _mm512_mul_ps(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(integers))));
    // Factors are to come from memory: see EightI4.
    asm volatile("" : "+m"(g.factors));
  }
};

struct LinesOfQ6K : LinesOfBlocks<DType::kQ6K, 1> {
  using LinesOfBlocks::LinesOfBlocks;
  struct Group {
    Avx512Bf16::RunsOf16 runs;

    SLUICE_INLINE PairOfLines pair(int i) const { return {runs.line(2 * i), runs.line(2 * i + 1)}; }
  };
  SLUICE_INLINE static void group(const std::uint8_t* block, std::int64_t /*k*/, Group& g) {
    g.runs.read(block);
  }
};

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
    return block >= p.depth || (block % kBytes == 0 && p.depth <= kTables * block);
  }

  SLUICE_INLINE explicit LinesOfF8(const MatmulPiece& p)
      : p_(p),
        tables_(reinterpret_cast<Table*>(p.wide)),
        block_(p.scales.block_cols < p.depth ? p.scales.block_cols : p.depth) {}
  SLUICE_INLINE static std::int64_t bytes(std::int64_t count) { return count; }
  SLUICE_INLINE const std::uint8_t* place(std::int64_t col) const {
    return static_cast<const std::uint8_t*>(p_.weight) + col * p_.weight_stride;
  }
  SLUICE_INLINE std::int64_t same_until(std::int64_t col, std::int64_t end) const {
    const std::int64_t border = (col / p_.scales.block_rows + 1) * p_.scales.block_rows;
    return border < end ? border : end;
  }
  SLUICE_INLINE void begin(std::int64_t col) {
    const float* const scales = p_.scales.values + col / p_.scales.block_rows * p_.scales.stride;
    if (scales == scales_) return;
    scales_ = scales;
    for (std::int64_t k = 0, i = 0; k < p_.depth; k += block_, ++i) {
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
    g.table = tables_ + k / block_;
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
  const float* scales_ = nullptr;  // that the tables are of
};

}  // namespace sluice::kernels
