// Rows of a weight as the left operand of tile products (matmul_tiles.h): where they lie in the
// checkpoint, or else in scratch memory, widened to BF16 in the cache.
//
// A type of weight has the Element of its operand, whether that lies in place, place() and stride()
// of rows in the checkpoint, and put_rows(p, col, count, k, depth, to): it writes the elements
// [k, k + depth) of rows [col, col + count), kScratchRowBytes apart; up to the next whole tile, a
// row's elements become zeros or are multiplied by zeros. Included by kernels_amx.cpp only; see
// simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/tile_registers.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

// Bytes of K of one pass over many tokens: the rows of x of a pass stay in the second-level cache.
inline constexpr std::int64_t kPassBytes = 4096;
// The same over few tokens, of weights in scratch memory: 16 rows stay in the first-level cache.
inline constexpr std::int64_t kFewPassBytes = 2048;
// One more line, so that rows in scratch memory lie in different sets of a cache.
inline constexpr std::int64_t kScratchRowBytes = kPassBytes + kTileRowBytes;

SLUICE_INLINE static __mmask64 first_bytes(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1U;
}

// Elements of a weight that are read where they lie.
template <class E>
struct InPlace {
  using Element = E;
  static constexpr bool kInPlace = true;
  static const std::uint8_t* place(const MatmulPiece& p, std::int64_t col, std::int64_t k) {
    return reinterpret_cast<const std::uint8_t*>(static_cast<const Element*>(p.weight) +
                                                 col * p.weight_stride + k);
  }
  static std::int64_t stride(const MatmulPiece& p) {
    return p.weight_stride * static_cast<std::int64_t>(sizeof(Element));
  }
  // Copies what is left of the rows.
  static void put_rows(const MatmulPiece& p, std::int64_t col, int count, std::int64_t k,
                       std::int64_t depth, std::uint8_t* to) {
    const std::int64_t bytes = depth * static_cast<std::int64_t>(sizeof(Element));
    for (int r = 0; r < count; ++r, to += kScratchRowBytes) {
      const std::uint8_t* const from = place(p, col + r, k);
      for (std::int64_t i = 0; i < bytes; i += kTileRowBytes) {
        _mm512_storeu_si512(to + i, _mm512_maskz_loadu_epi8(first_bytes(bytes - i), from + i));
      }
    }
  }
};

// Blocks (a type of widen_blocks.h) that are widened to BF16. All kinds of blocks end where a tile
// ends, and a pass begins where a block begins. Elements behind the last one of a row are
// multiplied by zeros.
template <class Blocks, class Widening>
struct Widened {
  using Element = std::uint16_t;
  static constexpr bool kInPlace = false;
  static constexpr ElementBlock kBlock = block_of(Blocks::kDType);
  static_assert(kBlock.elements % 32 == 0 && kPassBytes / 2 % kBlock.elements == 0);
  static const std::uint8_t* place(const MatmulPiece& p, std::int64_t col, std::int64_t k) {
    return static_cast<const std::uint8_t*>(p.weight) + col * stride(p) +
           k / kBlock.elements * kBlock.bytes;
  }
  static std::int64_t stride(const MatmulPiece& p) {
    return p.weight_stride / kBlock.elements * kBlock.bytes;
  }
  static void put_rows(const MatmulPiece& p, std::int64_t col, int count, std::int64_t k,
                       std::int64_t depth, std::uint8_t* to) {
    // Few tokens wait for memory: the blocks that are widened next are fetched meanwhile.
    const std::uint8_t* const first = place(p, col, k);
    const std::uint8_t* const next =
        k + depth < p.depth ? place(p, col, k + depth) : place(p, col + kTileRows, 0);
    const std::int64_t ahead = next - first;
    for (int r = 0; r < count; ++r, to += kScratchRowBytes) {
      const std::uint8_t* from = place(p, col + r, k);
      auto* elements = reinterpret_cast<std::uint16_t*>(to);
      for (std::int64_t i = 0; i < depth; i += kBlock.elements, from += kBlock.bytes) {
        for (std::int64_t line = 0; line < kBlock.bytes; line += kTileRowBytes) {
          _mm_prefetch(reinterpret_cast<const char*>(from + ahead + line), _MM_HINT_T0);
        }
        Blocks::template widen<Widening>(elements + i, from);
      }
    }
  }
};

// The values of E4M3 without sign.
inline constexpr std::array<float, 128> kE4m3Values = [] {
  std::array<float, 128> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    const auto mantissa = static_cast<float>(code % 8);
    const std::size_t exponent = code / 8;
    float power = 0x1p-6F;
    for (std::size_t e = 1; e < exponent; ++e) power *= 2;
    values[code] = exponent == 0 ? mantissa / 8 * power : (1 + mantissa / 8) * power;
  }
  values[127] = __builtin_nanf("");
  return values;
}();

// Codes of FP8 (E4M3): an element is the code's value times its scale, rounded to BF16.
// `S`: the instruction set, of which no shared code may be linked elsewhere.
template <class S>
struct WidenedF8 {
  using Element = std::uint16_t;
  static constexpr bool kInPlace = false;
  static const std::uint8_t* place(const MatmulPiece& p, std::int64_t col, std::int64_t k) {
    return static_cast<const std::uint8_t*>(p.weight) + col * p.weight_stride + k;
  }
  static std::int64_t stride(const MatmulPiece& p) { return p.weight_stride; }
  // Rows of one block share its table. Rows are read one after the other, as memory likes it, with
  // the tables of some blocks along K at hand.
  static void put_rows(const MatmulPiece& p, std::int64_t col, int count, std::int64_t k,
                       std::int64_t depth, std::uint8_t* to) {
    constexpr int kTables = kPassBytes / 2 / 128 + 1;  // blocks of 128 in a pass, and one more
    const std::int64_t block = p.scales.block_cols;
    const std::int64_t end = k + depth;
    // Few tokens wait for memory: the codes that are widened next are fetched meanwhile.
    const std::int64_t ahead = end < p.depth ? depth : kTileRows * stride(p) - k;
    for (std::int64_t begin = k; begin < end;) {
      const std::int64_t behind = (begin / block + kTables) * block;
      const std::int64_t next = behind < end ? behind : end;
      Table tables[kTables];
      const float* last = nullptr;
      for (int r = 0; r < count; ++r) {
        const float* const scales =
            p.scales.values + (col + r) / p.scales.block_rows * p.scales.stride + begin / block;
        auto* const elements = reinterpret_cast<std::uint16_t*>(to + r * kScratchRowBytes);
        int index = 0;
        for (std::int64_t at = begin; at < next; ++index) {
          const std::int64_t border = (at / block + 1) * block;
          const std::int64_t stop = border < next ? border : next;
          if (scales != last) tables[index] = table_of(scales[index]);
          const std::uint8_t* const codes = place(p, col + r, at);
          widen(tables[index], codes, codes + ahead, stop - at, elements + (at - k));
          at = stop;
        }
        last = scales;
      }
      begin = next;
    }
    const auto left = static_cast<__mmask32>(~std::uint64_t{0} << depth % 32);
    if (depth % 32 == 0) return;
    for (int r = 0; r < count; ++r) {
      _mm512_mask_storeu_epi16(to + r * kScratchRowBytes + depth / 32 * kTileRowBytes, left,
                               _mm512_setzero_si512());
    }
  }

 private:
  // The elements of codes without sign: their low and their high bytes.
  struct Table {
    __m512i low[2];
    __m512i high[2];
  };

  SLUICE_INLINE static Table table_of(float scale) {
    const __m512 factor = _mm512_set1_ps(scale);
    Table table;
    for (int half = 0; half < 2; ++half) {
      __m256i low[2];
      __m256i high[2];
      for (int quarter = 0; quarter < 2; ++quarter) {
        const float* values = kE4m3Values.data() + 64 * half + 32 * quarter;
        const auto elements = reinterpret_cast<__m512i>(
            _mm512_cvtne2ps_pbh(_mm512_mul_ps(_mm512_loadu_ps(values + 16), factor),
                                _mm512_mul_ps(_mm512_loadu_ps(values), factor)));
        low[quarter] = _mm512_cvtepi16_epi8(elements);
        high[quarter] = _mm512_cvtepi16_epi8(_mm512_srli_epi16(elements, 8));
      }
      table.low[half] = _mm512_inserti64x4(_mm512_castsi256_si512(low[0]), low[1], 1);
      table.high[half] = _mm512_inserti64x4(_mm512_castsi256_si512(high[0]), high[1], 1);
    }
    return table;
  }

  // Writes `count` elements, and what they fill up to a multiple of 32.
  SLUICE_INLINE static void widen(const Table& table, const std::uint8_t* codes,
                                  const std::uint8_t* upcoming, std::int64_t count,
                                  std::uint16_t* to) {
    // Unpacking takes eight bytes of each 16, so those of the first half go there.
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    for (std::int64_t i = 0; i < count; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(upcoming + i), _MM_HINT_T0);
      const __m512i code = _mm512_permutexvar_epi64(
          order, _mm512_maskz_loadu_epi8(first_bytes(count - i), codes + i));
      const __m512i low = _mm512_permutex2var_epi8(table.low[0], code, table.low[1]);
      const __m512i without_sign = _mm512_permutex2var_epi8(table.high[0], code, table.high[1]);
      constexpr int kOrAnd = 0xF8;  // a | (b & c)
      const __m512i high = _mm512_ternarylogic_epi64(without_sign, code, sign, kOrAnd);
      _mm512_storeu_si512(to + i, _mm512_unpacklo_epi8(low, high));
      if (count - i > 32) _mm512_storeu_si512(to + i + 32, _mm512_unpackhi_epi8(low, high));
    }
  }
};

}  // namespace sluice::kernels
