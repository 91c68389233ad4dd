// The policies of matmul_int4.h for AVX-512. Included by kernels_avx512*.cpp only; see
// simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_int4.h"
#include "device/cpu/kernels/simd_avx512.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

struct Int4Avx512 {
  using Simd = Avx512;
  using Codes = __m512i;
  static constexpr int kRows = 8;

  // Byte j of 16 columns, four bytes each: lane l of vector j has columns 4 l + j, and is
  // transposed. Low halves of bytes are the first 16 elements.
  SLUICE_INLINE static void read_codes(const Int4Columns<16>& columns, std::int64_t offset,
                                       Codes (&codes)[kInt4Quads]) {
    __m512 bytes[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto column = [&](int c) { return load_16_bytes(columns.at(c, offset)); };
      __m512i v = _mm512_castsi128_si512(column(j));
      v = _mm512_inserti32x4(v, column(4 + j), 1);
      v = _mm512_inserti32x4(v, column(8 + j), 2);
      v = _mm512_inserti32x4(v, column(12 + j), 3);
      bytes[j] = _mm512_castsi512_ps(v);
    }
    Avx512::transpose_lanes(bytes);
    const __m512i half = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i v = _mm512_castps_si512(bytes[q]);
      codes[q] = _mm512_and_si512(v, half);
      codes[4 + q] = _mm512_and_si512(_mm512_srli_epi16(v, 4), half);
    }
  }

  // Where a column's scales go. The compiler is not to know these numbers: it would make them anew
  // each time, with instructions for the unit that all else waits for.
  struct Constants {
    __mmask32 quarter_words[8];

    SLUICE_INLINE Constants() {
#pragma GCC unroll 8
      for (int c = 1; c < 8; ++c) {
        quarter_words[c] = 0xFU << 4 * c;
        asm("" : "+Yk"(quarter_words[c]));
      }
    }
  };

  // The scales of four blocks of 16 columns.
  SLUICE_INLINE static void read_scales(const Constants& constants, const Int4Columns<16>& columns,
                                        float (&scales)[kInt4Group][16]) {
    static_assert(kInt4Group == 4 && kInt4BlockBytes == 18);
    const __m512i places = _mm512_set1_epi64(0x001B'0012'0009'0000);  // 16-bit words
    __m512i halves[2];
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) {
      const __m512i all = _mm512_loadu_si512(columns.at(c, 0));
      halves[c / 8] = c % 8 == 0 ? _mm512_permutexvar_epi16(places, all)
                                 : _mm512_mask_permutexvar_epi16(
                                       halves[c / 8], constants.quarter_words[c % 8], places, all);
    }
    // Word 4 c + b becomes word 16 b + c.
    const __m512i order = _mm512_setr_epi64(
        0x000C'0008'0004'0000, 0x001C'0018'0014'0010, 0x002C'0028'0024'0020, 0x003C'0038'0034'0030,
        0x000D'0009'0005'0001, 0x001D'0019'0015'0011, 0x002D'0029'0025'0021, 0x003D'0039'0035'0031);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i two = _mm512_permutex2var_epi16(
          halves[0], _mm512_add_epi16(order, _mm512_set1_epi16(static_cast<short>(2 * i))),
          halves[1]);
      _mm512_store_ps(scales[2 * i], _mm512_cvtph_ps(_mm512_castsi512_si256(two)));
      _mm512_store_ps(scales[2 * i + 1], _mm512_cvtph_ps(_mm512_extracti64x4_epi64(two, 1)));
    }
  }

  // Sums of products of bytes in 16 bits: at most 8 times 2 * 15 * 127.
  SLUICE_INLINE static __m512 multiply(const Codes (&codes)[kInt4Quads], const std::int32_t* x,
                                       std::int64_t width, std::int32_t start) {
    __m512i pairs = _mm512_maddubs_epi16(codes[0], _mm512_set1_epi32(x[0]));
#pragma GCC unroll 8
    for (int q = 1; q < kInt4Quads; ++q) {
      pairs =
          _mm512_add_epi16(pairs, _mm512_maddubs_epi16(codes[q], _mm512_set1_epi32(x[q * width])));
    }
    const __m512i sums = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(sums, _mm512_set1_epi32(start)));
  }
};

}  // namespace sluice::kernels
