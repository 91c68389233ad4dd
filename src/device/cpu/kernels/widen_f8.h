// Codes of FP8 (E4M3) to BF16: an element is the code's value times its scale, rounded to BF16. A
// table of bytes for each scale, so AVX-512 VBMI is needed.
// Included by kernels_avx512_bf16.cpp and kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

#include "device/cpu/kernels/inline.h"

namespace sluice::kernels {

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

// `S`: the instruction set, of which no shared code may be linked elsewhere.
template <class S>
struct WidenF8 {
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

  // Writes `count` elements, and what they fill up to a multiple of 32; `step` elements lie between
  // the beginnings of lines. fetch(i) is called for each 64 codes.
  template <class Fetch>
  SLUICE_INLINE static void widen(const Table& table, const std::uint8_t* codes, std::int64_t count,
                                  std::uint16_t* to, std::int64_t step, const Fetch& fetch) {
    std::int64_t i = 0;
    for (; i + 64 <= count; i += 64, to += 2 * step) {
      fetch(i);
      const Widened64 elements = widen(table, _mm512_loadu_si512(codes + i));
      _mm512_storeu_si512(to, elements.first);
      _mm512_storeu_si512(to + step, elements.second);
    }
    if (i == count) return;
    fetch(i);
    const Widened64 elements =
        widen(table, _mm512_maskz_loadu_epi8((std::uint64_t{1} << (count - i)) - 1U, codes + i));
    _mm512_storeu_si512(to, elements.first);
    if (count - i > 32) _mm512_storeu_si512(to + step, elements.second);
  }

  SLUICE_INLINE static void widen(const Table& table, const std::uint8_t* codes, std::int64_t count,
                                  std::uint16_t* to, std::int64_t step) {
    widen(table, codes, count, to, step, [](std::int64_t) {});
  }

  // 64 elements as two lines.
  struct Widened64 {
    __m512i first;
    __m512i second;
  };
  SLUICE_INLINE static Widened64 widen(const Table& table, __m512i codes) {
    // Unpacking takes eight bytes of each 16, so those of the first half go there.
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i code = _mm512_permutexvar_epi64(order, codes);
    const __m512i low = _mm512_permutex2var_epi8(table.low[0], code, table.low[1]);
    const __m512i without_sign = _mm512_permutex2var_epi8(table.high[0], code, table.high[1]);
    constexpr int kOrAnd = 0xF8;  // a | (b & c)
    const __m512i high = _mm512_ternarylogic_epi64(without_sign, code, sign, kOrAnd);
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }
};

}  // namespace sluice::kernels
