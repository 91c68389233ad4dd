// How AVX-512 reads bytes of 16 columns and multiplies them, for matmul_quantized.h. A vector V has
// four bytes of each column. Included by kernels_avx512*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_quantized.h"
#include "device/cpu/kernels/simd_avx512.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

struct BytesAvx512 {
  using Simd = Avx512;
  using V = __m512i;
  static constexpr int kCols = 16;
  static constexpr int kRows = 16;
  // Whether codes of 8 bits are multiplied with a sign; else they begin at 0.
  static constexpr bool kSigned = true;
  using Columns = ColumnsOfBytes<kCols>;

  SLUICE_INLINE static V set1(std::int32_t x) { return _mm512_set1_epi32(x); }
  SLUICE_INLINE static V set1_byte(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  SLUICE_INLINE static V load(const std::int32_t* p) { return _mm512_load_si512(p); }
  SLUICE_INLINE static void store(std::int32_t* p, V v) { _mm512_store_si512(p, v); }
  SLUICE_INLINE static V subtract(V a, V b) { return _mm512_sub_epi32(a, b); }
  template <int bits>
  SLUICE_INLINE static V left(V v) {
    return _mm512_slli_epi32(v, bits);
  }
  template <int bits>
  SLUICE_INLINE static V right(V v) {
    return _mm512_srli_epi32(v, bits);
  }
  template <int bits>
  SLUICE_INLINE static V right_signed(V v) {
    return _mm512_srai_epi32(v, bits);
  }
  SLUICE_INLINE static __m512 to_float(V v) { return _mm512_cvtepi32_ps(v); }
  SLUICE_INLINE static __m512 as_floats(V v) { return _mm512_castsi512_ps(v); }
  // The low half of each lane, from F16.
  SLUICE_INLINE static __m512 halves(V v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
  // Numbers in the low halves of lanes whose high halves are 0, times one of 16 bits.
  SLUICE_INLINE static V times(V numbers, std::int32_t by) {
    return _mm512_madd_epi16(numbers, set1(by));
  }

  // 16 bytes of each column, four to a vector. Four columns of each vector, 4 l + j in lane l of
  // vector j, are transposed. in_words: of each 8 words the low bytes come first, then the high
  // ones.
  template <bool in_words = false>
  SLUICE_INLINE static void read_16(const Columns& columns, std::int64_t offset, V (&out)[4]) {
    __m512 bytes[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      __m512i v = _mm512_castsi128_si512(load_16_bytes(columns.at(j, offset)));
      v = _mm512_inserti32x4(v, load_16_bytes(columns.at(4 + j, offset)), 1);
      v = _mm512_inserti32x4(v, load_16_bytes(columns.at(8 + j, offset)), 2);
      v = _mm512_inserti32x4(v, load_16_bytes(columns.at(12 + j, offset)), 3);
      if (in_words) {
        v = _mm512_shuffle_epi8(v,
                                _mm512_set4_epi32(0x0F0D0B09, 0x07050301, 0x0E0C0A08, 0x06040200));
      }
      bytes[j] = _mm512_castsi512_ps(v);
    }
    Avx512::transpose_lanes(bytes);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) out[q] = _mm512_castps_si512(bytes[q]);
  }

  // Where the heads of columns and of pairs of blocks go. The compiler is not to know these
  // numbers: it would make them anew each time, with instructions for the unit that all else waits
  // for.
  struct Constants {
    __mmask32 pairs[8];

    SLUICE_INLINE Constants() {
#pragma GCC unroll 8
      for (int i = 1; i < 8; ++i) {
        pairs[i] = 0xFU << 4 * i;
        asm("" : "+Yk"(pairs[i]));
      }
    }
  };

  // The first four bytes of each of four blocks of `bytes` bytes.
  template <std::int64_t bytes>
  SLUICE_INLINE static void read_heads(const Constants& constants, const Columns& columns,
                                       V (&heads)[4]) {
    // Blocks 0 and 2 begin at even bytes; blocks 1 and 3 may not, or lie too far behind them.
    constexpr bool kOnce = bytes == 18;
    constexpr int kSecond = kOnce ? 0 : bytes % 2 == 0 ? 68 : 11;
    static_assert(kOnce || bytes == 34 || bytes == 19);
    const auto words = [](int at) {
      return static_cast<std::int64_t>(at / 2 | (at / 2 + 1) << 16);
    };
    const auto pair = [&](int a, int b) { return words(a) | words(b) << 32; };
    constexpr int kBytes = static_cast<int>(bytes);
    // Blocks 0 and 2 or 0 and 1 from the first 64 bytes.
    __m512 all[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      __m512i v;
#pragma GCC unroll 4
      for (int l = 0; l < 4; ++l) {
        const std::uint8_t* const column = columns.at(4 * l + j, 0);
        const __m512i first = _mm512_loadu_si512(column);
        if (kOnce) {
          const __m512i places = _mm512_set4_epi64(pair(2 * kBytes, 3 * kBytes), pair(0, kBytes),
                                                   pair(2 * kBytes, 3 * kBytes), pair(0, kBytes));
          v = l == 0 ? _mm512_permutexvar_epi16(places, first)
                     : _mm512_mask_permutexvar_epi16(
                           v, constants.pairs[2 * l] | constants.pairs[2 * l + 1], places, first);
          continue;
        }
        const int other = bytes == 34 ? 34 : 38;
        const int begin = bytes == 34 ? 0 : 19 - kSecond;
        const __m512i places = _mm512_set1_epi64(pair(0, other));
        const __m512i second_places = _mm512_set1_epi64(pair(begin, begin + other));
        v = l == 0 ? _mm512_permutexvar_epi16(places, first)
                   : _mm512_mask_permutexvar_epi16(v, constants.pairs[2 * l], places, first);
        v = _mm512_mask_permutexvar_epi16(v, constants.pairs[2 * l + 1], second_places,
                                          _mm512_loadu_si512(column + kSecond));
      }
      all[j] = _mm512_castsi512_ps(v);
    }
    Avx512::transpose_lanes(all);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      // Words of blocks 0, 2, 1 and 3 in those of 19 bytes.
      const int from = bytes == 19 ? (i == 1 ? 2 : i == 2 ? 1 : i) : i;
      heads[i] = _mm512_castps_si512(all[from]);
    }
  }

  // start + the products of `quads` vectors of codes of `bits` bits and of x, from its quad `first`
  // on.
  template <int bits, int quads, class X>
  SLUICE_INLINE static V multiply(const V* codes, const X& x, int first, V start) {
    return multiply_in_pairs<BytesAvx512, bits, quads>(codes, x, first, start);
  }
  // Products of bytes, two added up in 16 bits.
  template <int bits>
  SLUICE_INLINE static V pairs_of(V codes, V x) {
    if constexpr (bits < 8) return _mm512_maddubs_epi16(codes, x);
    const __m512i signed_x =
        _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), x);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(codes), signed_x);
  }
  SLUICE_INLINE static V add_pairs(V a, V b) { return _mm512_add_epi16(a, b); }
  SLUICE_INLINE static V add_sums_of_pairs(V start, V pairs) {
    return _mm512_add_epi32(start, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
};

}  // namespace sluice::kernels
