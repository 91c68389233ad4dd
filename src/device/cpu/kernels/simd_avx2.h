// Avx2: vectors of 8 floats (AVX2, FMA, F16C). The same interface as Avx512 in simd_avx512.h.
// Included by kernels_avx2.cpp only: code that includes it needs its compiler flags. Everything is
// forced inline, so that no function compiled with those flags can be linked into code for older
// machines.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "device/cpu/kernels/inline.h"

namespace sluice::kernels {

struct Avx2 {
  using F = __m256;
  using Mask = __m256;  // all bits of a lane
  static constexpr int kLanes = 8;
  static constexpr int kDotRows = 3;
  static constexpr int kDotCols = 4;
  static constexpr std::int64_t kManyRows = 9;
  static constexpr std::int64_t kManyDepth = MatmulParams::kMaxIntegerDepth;
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 2;

  SLUICE_INLINE static F zero() { return _mm256_setzero_ps(); }
  SLUICE_INLINE static F set1(float x) { return _mm256_set1_ps(x); }
  SLUICE_INLINE static F add(F a, F b) { return _mm256_add_ps(a, b); }
  SLUICE_INLINE static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  SLUICE_INLINE static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  SLUICE_INLINE static F div(F a, F b) { return _mm256_div_ps(a, b); }
  SLUICE_INLINE static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  SLUICE_INLINE static F fms(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }
  SLUICE_INLINE static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  SLUICE_INLINE static F max(F a, F b) { return _mm256_max_ps(a, b); }
  SLUICE_INLINE static F min(F a, F b) { return _mm256_min_ps(a, b); }

  SLUICE_INLINE static __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  SLUICE_INLINE static Mask first(int n) { return _mm256_castsi256_ps(first_lanes(n)); }
  SLUICE_INLINE static Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
  SLUICE_INLINE static Mask without(Mask a, Mask b) { return _mm256_andnot_ps(b, a); }
  SLUICE_INLINE static Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  SLUICE_INLINE static F select(Mask mask, F yes, F no) { return _mm256_blendv_ps(no, yes, mask); }

  SLUICE_INLINE static F load(const float* p) { return _mm256_loadu_ps(p); }
  SLUICE_INLINE static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  SLUICE_INLINE static F load(const float* p, int n) {
    return _mm256_maskload_ps(p, first_lanes(n));
  }
  SLUICE_INLINE static void store(float* p, F v, int n) {
    _mm256_maskstore_ps(p, first_lanes(n), v);
  }

  using H = __m128i;
  SLUICE_INLINE static H load_h(const std::uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  // AVX2 has no masked load of 16-bit lanes, so a small array is used.
  SLUICE_INLINE static H load_h(const std::uint16_t* p, int n) {
    alignas(16) std::uint16_t copy[8] = {};
    __builtin_memcpy(copy, p, static_cast<std::size_t>(n) * 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(copy));
  }
  SLUICE_INLINE static void store_h(std::uint16_t* p, H v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
  }
  SLUICE_INLINE static void store_h(std::uint16_t* p, H v, int n) {
    alignas(16) std::uint16_t copy[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(copy), v);
    __builtin_memcpy(p, copy, static_cast<std::size_t>(n) * 2);
  }
  SLUICE_INLINE static F from_bf16(H h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  SLUICE_INLINE static F from_f16(H h) { return _mm256_cvtph_ps(h); }
  SLUICE_INLINE static H load_e4m3(const std::uint8_t* p) {
    return widen_e4m3(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  SLUICE_INLINE static H load_e4m3(const std::uint8_t* p, int n) {
    alignas(8) std::uint8_t copy[8] = {};
    __builtin_memcpy(copy, p, static_cast<std::size_t>(n));
    return widen_e4m3(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(copy)));
  }
  SLUICE_INLINE static H to_f16(F v) {
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  SLUICE_INLINE static H to_bf16(F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd_bit = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd_bit);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    // Narrows within 128-bit halves; the permutation puts the quarters in order.
    const __m256i narrow = _mm256_packus_epi32(high, high);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(narrow, 0x08));
  }

  using Pairs = __m256i;
  SLUICE_INLINE static Pairs load_pairs(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  SLUICE_INLINE static Pairs load_pairs(const std::uint16_t* p, int n) {
    alignas(32) std::uint16_t copy[16] = {};
    __builtin_memcpy(copy, p, static_cast<std::size_t>(n) * 2);
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(copy));
  }
  SLUICE_INLINE static F even(Pairs v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
  SLUICE_INLINE static F odd(Pairs v) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }

  using Sums = __v8si;
  using Codes = __m256i;
  static constexpr int kCodes = 16;
  SLUICE_INLINE static Codes load_codes(const std::int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  SLUICE_INLINE static Codes load_codes(const std::int8_t* p, int n) {
    alignas(16) std::int8_t copy[16] = {};
    __builtin_memcpy(copy, p, static_cast<std::size_t>(n));
    return load_codes(copy);
  }
  SLUICE_INLINE static Sums add_products(Codes x, Codes w, Sums sums) {
    return sums + reinterpret_cast<Sums>(_mm256_madd_epi16(x, w));
  }
  SLUICE_INLINE static __m128i quarter_sum(Sums sums) {
    const auto v = reinterpret_cast<__m256i>(sums);
    return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  }
  // The 32 elements of a block of INT4, in BF16. A table of the 16 values that a code can have is
  // looked up byte by byte: low bytes, then high bytes.
  SLUICE_INLINE static void store_widened(std::uint16_t* p, const std::uint8_t* block) {
    std::int16_t half = 0;
    __builtin_memcpy(&half, block, sizeof(half));
    const F scale = _mm256_cvtph_ps(_mm_set1_epi16(half));
    const __m128i first =
        to_bf16(_mm256_mul_ps(_mm256_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1), scale));
    const __m128i second = to_bf16(_mm256_mul_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), scale));
    const __m128i low_bytes = low_bytes_of(first, second);
    const __m128i high_bytes = high_bytes_of(first, second);
    const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + sizeof(half)));
    const __m128i nibble = _mm_set1_epi8(15);
    store_looked_up(p, _mm_and_si128(pairs, nibble), low_bytes, high_bytes);
    store_looked_up(p + 16, _mm_and_si128(_mm_srli_epi16(pairs, 4), nibble), low_bytes, high_bytes);
  }
  SLUICE_INLINE static __m128i low_bytes_of(__m128i first, __m128i second) {
    const __m128i byte = _mm_set1_epi16(0xFF);
    return _mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(second, byte));
  }
  SLUICE_INLINE static __m128i high_bytes_of(__m128i first, __m128i second) {
    return _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
  }
  SLUICE_INLINE static void store_looked_up(std::uint16_t* p, __m128i indices, __m128i low_bytes,
                                            __m128i high_bytes) {
    const __m128i low = _mm_shuffle_epi8(low_bytes, indices);
    const __m128i high = _mm_shuffle_epi8(high_bytes, indices);
    store_h(p, _mm_unpacklo_epi8(low, high));
    store_h(p + 8, _mm_unpackhi_epi8(low, high));
  }
  SLUICE_INLINE static F set1_f16(const std::uint8_t* p) {
    std::int16_t half = 0;
    __builtin_memcpy(&half, p, sizeof(half));
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
  }
  SLUICE_INLINE static void store_scaled(std::uint16_t* p, __m128i codes, F scale) {
    const F first = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    const F second = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)));
    store_h(p, to_bf16(_mm256_mul_ps(first, scale)));
    store_h(p + 8, to_bf16(_mm256_mul_ps(second, scale)));
  }
  SLUICE_INLINE static void store_linear(std::uint16_t* p, __m256i codes, F scale, F minimum) {
    store_by_table(p, codes, _mm256_sub_ps(_mm256_mul_ps(low_codes(), scale), minimum),
                   _mm256_sub_ps(_mm256_mul_ps(high_codes(), scale), minimum));
  }
  SLUICE_INLINE static void store_shifted(std::uint16_t* p, __m256i codes, F scale, float zero) {
    store_by_table(p, codes, _mm256_mul_ps(_mm256_sub_ps(low_codes(), _mm256_set1_ps(zero)), scale),
                   _mm256_mul_ps(_mm256_sub_ps(high_codes(), _mm256_set1_ps(zero)), scale));
  }
  // 128 elements from 32 words of four codes: codes j of the words are the elements from 32 j on.
  SLUICE_INLINE static void store_four_runs(std::uint16_t* p, const std::uint8_t* words, F scale,
                                            float zero) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + 32));
    const __m256i nibble = _mm256_set1_epi16(15);
    for (int j = 0; j < 4; ++j) {
      const __m256i low = _mm256_and_si256(_mm256_srli_epi16(first, 4 * j), nibble);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(second, 4 * j), nibble);
      // Packs within 128-bit halves; the permutation puts the quarters in order.
      const __m256i codes = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xD8);
      store_shifted(p + 32 * j, codes, scale, zero);
    }
  }
  SLUICE_INLINE static void store_linear(std::uint16_t* p, __m128i codes, F scale, F minimum) {
    const F first = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes));
    const F second = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)));
    store_h(p, to_bf16(_mm256_sub_ps(_mm256_mul_ps(first, scale), minimum)));
    store_h(p + 8, to_bf16(_mm256_sub_ps(_mm256_mul_ps(second, scale), minimum)));
  }
  SLUICE_INLINE static void store_shifted(std::uint16_t* p, __m128i codes, F scale, float zero) {
    const F first = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes));
    const F second = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)));
    store_h(p, to_bf16(_mm256_mul_ps(_mm256_sub_ps(first, _mm256_set1_ps(zero)), scale)));
    store_h(p + 8, to_bf16(_mm256_mul_ps(_mm256_sub_ps(second, _mm256_set1_ps(zero)), scale)));
  }
  SLUICE_INLINE static void store_codes(std::int8_t* p, F v) {
    const __m256i wide = _mm256_cvtps_epi32(v);
    const __m128i half =
        _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(half, half));
  }

  SLUICE_INLINE static F even_f16(Pairs v) {
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF));
    const __m256i narrow = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(narrow));
  }
  SLUICE_INLINE static F odd_f16(Pairs v) { return even_f16(_mm256_srli_epi32(v, 16)); }
  SLUICE_INLINE static F as_floats(Pairs v) { return _mm256_castsi256_ps(v); }
  SLUICE_INLINE static Pairs as_pairs(F v) { return _mm256_castps_si256(v); }

  SLUICE_INLINE static F round(F v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  SLUICE_INLINE static F pow2(F n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }

  SLUICE_INLINE static __m128 quarter_sum(F v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  }
  SLUICE_INLINE static float max_lane(F v) {
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

  SLUICE_INLINE static void transpose(F (&rows)[8]) {
    F t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    F u[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      rows[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }

 private:
  SLUICE_INLINE static F low_codes() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
  SLUICE_INLINE static F high_codes() { return _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15); }
  // 32 elements, given the values of the codes 0 to 7 and 8 to 15.
  SLUICE_INLINE static void store_by_table(std::uint16_t* p, __m256i codes, F low, F high) {
    const __m128i first = to_bf16(low);
    const __m128i second = to_bf16(high);
    const __m128i low_bytes = low_bytes_of(first, second);
    const __m128i high_bytes = high_bytes_of(first, second);
    store_looked_up(p, _mm256_castsi256_si128(codes), low_bytes, high_bytes);
    store_looked_up(p + 16, _mm256_extracti128_si256(codes, 1), low_bytes, high_bytes);
  }
  // Sign extension fills the bits above the sign, and a mask keeps only the topmost one. Adding to
  // the magnitude overflows for NaN only; the carry makes the float16 a NaN too.
  SLUICE_INLINE static H widen_e4m3(__m128i codes) {
    const __m128i moved = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7),
                                        _mm_set1_epi16(static_cast<short>(0xBF80)));
    const __m128i carried =
        _mm_add_epi16(_mm_and_si128(moved, _mm_set1_epi16(0x3F80)), _mm_set1_epi16(0x80));
    return _mm_or_si128(moved, _mm_and_si128(carried, _mm_set1_epi16(0x4000)));
  }
};

}  // namespace sluice::kernels
