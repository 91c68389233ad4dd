// The policy of matmul_int4.h for AVX2; see int4_avx512.h. Included by kernels_avx2*.cpp only; see
// simd_avx512.h.
#pragma once

#include <cstdint>

#include "device/cpu/kernels/matmul_int4.h"
#include "device/cpu/kernels/simd_avx2.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

struct Int4Avx2 {
  using Simd = Avx2;
  using Codes = __m256i;
  static constexpr int kRows = 4;

  struct Constants {};

  SLUICE_INLINE static void read_codes(const Int4Columns<8>& columns, std::int64_t offset,
                                       Codes (&codes)[kInt4Quads]) {
    __m256 v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      v[j] = _mm256_castsi256_ps(_mm256_set_m128i(load_16_bytes(columns.at(4 + j, offset)),
                                                  load_16_bytes(columns.at(j, offset))));
    }
    const __m256 low = _mm256_unpacklo_ps(v[0], v[1]);
    const __m256 high = _mm256_unpackhi_ps(v[0], v[1]);
    const __m256 next_low = _mm256_unpacklo_ps(v[2], v[3]);
    const __m256 next_high = _mm256_unpackhi_ps(v[2], v[3]);
    const __m256 bytes[4] = {
        _mm256_shuffle_ps(low, next_low, 0x44), _mm256_shuffle_ps(low, next_low, 0xEE),
        _mm256_shuffle_ps(high, next_high, 0x44), _mm256_shuffle_ps(high, next_high, 0xEE)};
    const __m256i half = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m256i all = _mm256_castps_si256(bytes[q]);
      codes[q] = _mm256_and_si256(all, half);
      codes[4 + q] = _mm256_and_si256(_mm256_srli_epi16(all, 4), half);
    }
  }

  SLUICE_INLINE static void read_scales(const Constants& /*none*/, const Int4Columns<8>& columns,
                                        float (&scales)[kInt4Group][8]) {
#pragma GCC unroll 4
    for (int b = 0; b < kInt4Group; ++b) {
      // Not by way of memory: a load of what two-byte stores wrote would wait for all of them.
      __m128i halves = _mm_setzero_si128();
      const std::int64_t offset = b * kInt4BlockBytes;
      halves = _mm_insert_epi16(halves, half_at(columns.at(0, offset)), 0);
      halves = _mm_insert_epi16(halves, half_at(columns.at(1, offset)), 1);
      halves = _mm_insert_epi16(halves, half_at(columns.at(2, offset)), 2);
      halves = _mm_insert_epi16(halves, half_at(columns.at(3, offset)), 3);
      halves = _mm_insert_epi16(halves, half_at(columns.at(4, offset)), 4);
      halves = _mm_insert_epi16(halves, half_at(columns.at(5, offset)), 5);
      halves = _mm_insert_epi16(halves, half_at(columns.at(6, offset)), 6);
      halves = _mm_insert_epi16(halves, half_at(columns.at(7, offset)), 7);
      _mm256_store_ps(scales[b], _mm256_cvtph_ps(halves));
    }
  }

  SLUICE_INLINE static __m256 multiply(const Codes (&codes)[kInt4Quads], const std::int32_t* x,
                                       std::int64_t width, std::int32_t start) {
    __m256i pairs = _mm256_maddubs_epi16(codes[0], _mm256_set1_epi32(x[0]));
#pragma GCC unroll 8
    for (int q = 1; q < kInt4Quads; ++q) {
      pairs =
          _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes[q], _mm256_set1_epi32(x[q * width])));
    }
    const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(sums, _mm256_set1_epi32(start)));
  }

 private:
  SLUICE_INLINE static std::int16_t half_at(const std::uint8_t* p) {
    std::int16_t half = 0;
    __builtin_memcpy(&half, p, sizeof(half));
    return half;
  }
};

}  // namespace sluice::kernels
