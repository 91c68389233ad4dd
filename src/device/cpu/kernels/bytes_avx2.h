// How AVX2 reads bytes of eight columns and multiplies them: see bytes_avx512.h. Included by
// kernels_avx2*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_quantized.h"
#include "device/cpu/kernels/simd_avx2.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

struct BytesAvx2 {
  using Simd = Avx2;
  using V = __m256i;
  static constexpr int kCols = 8;
  static constexpr int kRows = 4;
  static constexpr bool kSigned = true;
  // Whether codes of panels are less their zero points (quantized_panels.h).
  static constexpr bool kLessZeros = false;
  using Columns = ColumnsOfBytes<kCols>;
  struct Constants {};

  SLUICE_INLINE static V set1(std::int32_t x) { return _mm256_set1_epi32(x); }
  SLUICE_INLINE static V set1_byte(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  SLUICE_INLINE static V load(const std::int32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const V*>(p));
  }
  SLUICE_INLINE static void store(std::int32_t* p, V v) {
    _mm256_store_si256(reinterpret_cast<V*>(p), v);
  }
  SLUICE_INLINE static V subtract(V a, V b) { return _mm256_sub_epi32(a, b); }
  template <int bits>
  SLUICE_INLINE static V left(V v) {
    return _mm256_slli_epi32(v, bits);
  }
  template <int bits>
  SLUICE_INLINE static V right(V v) {
    return _mm256_srli_epi32(v, bits);
  }
  template <int bits>
  SLUICE_INLINE static V right_signed(V v) {
    return _mm256_srai_epi32(v, bits);
  }
  SLUICE_INLINE static __m256 to_float(V v) { return _mm256_cvtepi32_ps(v); }
  SLUICE_INLINE static __m256 as_floats(V v) { return _mm256_castsi256_ps(v); }
  SLUICE_INLINE static __m256 halves(V v) {
    const V low = v & set1(0xFFFF);
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
  }
  SLUICE_INLINE static V times(V numbers, std::int32_t by) {
    return _mm256_madd_epi16(numbers, set1(by));
  }

  template <bool in_words = false>
  SLUICE_INLINE static void read_16(const Columns& columns, std::int64_t offset, V (&out)[4]) {
    __m256 v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      V bytes = _mm256_set_m128i(load_16_bytes(columns.at(4 + j, offset)),
                                 load_16_bytes(columns.at(j, offset)));
      if (in_words) {
        bytes = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(_mm_setr_epi32(
                                               0x06040200, 0x0E0C0A08, 0x07050301, 0x0F0D0B09)));
      }
      v[j] = _mm256_castsi256_ps(bytes);
    }
    const __m256 low = _mm256_unpacklo_ps(v[0], v[1]);
    const __m256 high = _mm256_unpackhi_ps(v[0], v[1]);
    const __m256 next_low = _mm256_unpacklo_ps(v[2], v[3]);
    const __m256 next_high = _mm256_unpackhi_ps(v[2], v[3]);
    out[0] = _mm256_castps_si256(_mm256_shuffle_ps(low, next_low, 0x44));
    out[1] = _mm256_castps_si256(_mm256_shuffle_ps(low, next_low, 0xEE));
    out[2] = _mm256_castps_si256(_mm256_shuffle_ps(high, next_high, 0x44));
    out[3] = _mm256_castps_si256(_mm256_shuffle_ps(high, next_high, 0xEE));
  }

  template <std::int64_t bytes, std::int64_t at = 0>
  SLUICE_INLINE static void read_heads(const Constants& /*none*/, const Columns& columns,
                                       V (&heads)[4]) {
    // Inserted one by one: a load of what was stored in parts would wait for the stores.
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto word = [&](int c) {
        std::int32_t head = 0;
        __builtin_memcpy(&head, columns.at(c, i * bytes + at), sizeof(head));
        return head;
      };
      __m128i low = _mm_cvtsi32_si128(word(0));
      low = _mm_insert_epi32(low, word(1), 1);
      low = _mm_insert_epi32(low, word(2), 2);
      low = _mm_insert_epi32(low, word(3), 3);
      __m128i high = _mm_cvtsi32_si128(word(4));
      high = _mm_insert_epi32(high, word(5), 1);
      high = _mm_insert_epi32(high, word(6), 2);
      high = _mm_insert_epi32(high, word(7), 3);
      heads[i] = _mm256_set_m128i(high, low);
    }
  }

  template <int quad>
  SLUICE_INLINE static V with_fifth(V codes, V bits) {
    constexpr int kByte = quad / 2 * 0x01010101;
    const V places = _mm256_broadcastsi128_si256(
        _mm_setr_epi32(kByte, 0x04040404 + kByte, 0x08080808 + kByte, 0x0C0C0C0C + kByte));
    const V place_of_bit = set1(static_cast<int>(0x08040201U << quad % 2 * 4));
    const V set = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(bits, places) & place_of_bit, place_of_bit);
    return codes | (set & set1_byte(16));
  }
  SLUICE_INLINE static V look_up(__m128i table, V places) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), places);
  }
  SLUICE_INLINE static V right_by(V v, int bits) {
    return _mm256_srl_epi32(v, _mm_cvtsi32_si128(bits));
  }

  template <int bits, int quads, class X>
  SLUICE_INLINE static V multiply(const V* codes, const X& x, int first, V start) {
    return multiply_in_pairs<BytesAvx2, bits, quads>(codes, x, first, start);
  }
  template <int bits>
  SLUICE_INLINE static V pairs_of(V codes, V x) {
    if constexpr (bits < 8) return _mm256_maddubs_epi16(codes, x);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  }
  SLUICE_INLINE static V add_pairs(V a, V b) { return _mm256_add_epi16(a, b); }
  SLUICE_INLINE static V add_sums_of_pairs(V start, V pairs) {
    return _mm256_add_epi32(start, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

}  // namespace sluice::kernels
