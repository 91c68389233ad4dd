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
  // Whether codes of panels are less their zero points (quantized_panels.h).
  static constexpr bool kLessZeros = false;
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

  // Four bytes, from byte `at` on, of each of four blocks of `bytes` bytes.
  template <std::int64_t bytes, std::int64_t at = 0>
  SLUICE_INLINE static void read_heads(const Constants& constants, const Columns& columns,
                                       V (&heads)[4]) {
    static_assert(bytes == 19 ? at == 0 : bytes % 2 == 0 && at % 2 == 0);
    constexpr int kBytes = static_cast<int>(bytes);
    constexpr int kAt = static_cast<int>(at);
    // All from the first 64 bytes, or two blocks from these and two from 64 bytes further on that
    // end with the group at the latest. Words begin at even bytes, so in blocks of 19 bytes they
    // are blocks 0 and 2, then 1 and 3.
    constexpr bool kOnce = kBytes % 2 == 0 && 3 * kBytes + kAt + 4 <= 64;
    constexpr int kApart = kBytes % 2 == 0 ? kBytes : 2 * kBytes;
    constexpr int kThird = kBytes % 2 == 0 ? 2 * kBytes : kBytes;
    constexpr int kEnd = 4 * kBytes - 64;
    constexpr int kSecond = kBytes % 2 == 0 ? (kThird < kEnd ? kThird : kEnd) : kEnd - 1;
    const auto words = [](int from) {
      return static_cast<std::int64_t>(from / 2 | (from / 2 + 1) << 16);
    };
    const auto pair = [&](int a, int b) { return words(a) | words(b) << 32; };
    __m512 all[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      __m512i v;
#pragma GCC unroll 4
      for (int l = 0; l < 4; ++l) {
        const std::uint8_t* const column = columns.at(4 * l + j, 0);
        const __m512i first = _mm512_loadu_si512(column);
        if (kOnce) {
          const std::int64_t low = pair(kAt, kBytes + kAt);
          const std::int64_t high = pair(2 * kBytes + kAt, 3 * kBytes + kAt);
          const __m512i places = _mm512_set4_epi64(high, low, high, low);
          v = l == 0 ? _mm512_permutexvar_epi16(places, first)
                     : _mm512_mask_permutexvar_epi16(
                           v, constants.pairs[2 * l] | constants.pairs[2 * l + 1], places, first);
          continue;
        }
        constexpr int kBegin = kThird + kAt - kSecond;
        const __m512i places = _mm512_set1_epi64(pair(kAt, kAt + kApart));
        const __m512i second_places = _mm512_set1_epi64(pair(kBegin, kBegin + kApart));
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
      const int from = bytes == 19 ? (i == 1 ? 2 : i == 2 ? 1 : i) : i;
      heads[i] = _mm512_castps_si512(all[from]);
    }
  }

  // Codes with a fifth bit: bit 4 * quad + i of a lane for its byte i.
  template <int quad>
  SLUICE_INLINE static V with_fifth(V codes, V bits) {
    constexpr int kByte = quad / 2 * 0x01010101;
    const V places =
        _mm512_set4_epi32(0x0C0C0C0C + kByte, 0x08080808 + kByte, 0x04040404 + kByte, kByte);
    const V places_of_bits = set1(static_cast<int>(0x08040201U << quad % 2 * 4));
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, places), places_of_bits);
    return _mm512_mask_add_epi8(codes, set, codes, set1_byte(16));
  }
  // Bytes of a table of 16, by their places.
  SLUICE_INLINE static V look_up(__m128i table, V places) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), places);
  }
  // As right(), by a number that the compiler does not know.
  SLUICE_INLINE static V right_by(V v, int bits) {
    return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits));
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
