// Avx512: vectors of 16 floats (AVX-512 F, BW, DQ, VL). The same interface as Avx2 in simd_avx2.h.
// Included by kernels_avx512*.cpp only: code that includes it needs their compiler flags.
// Everything is forced inline, so that no function compiled with those flags can be linked into
// code for older machines.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "device/cpu/kernels/inline.h"

namespace sluice::kernels {

struct Avx512 {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  // Register tiles, rows x vectors: of dot products (matmul) and of broadcast products (attention).
  static constexpr int kDotRows = 4;
  static constexpr int kDotCols = 6;
  // From so many rows on, and up to so many elements along K, BF16 is widened beforehand
  // (matmul_many.h).
  static constexpr std::int64_t kManyRows = 64;
  static constexpr std::int64_t kManyDepth = 2048;
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 4;

  SLUICE_INLINE static F zero() { return _mm512_setzero_ps(); }
  SLUICE_INLINE static F set1(float x) { return _mm512_set1_ps(x); }
  SLUICE_INLINE static F add(F a, F b) { return _mm512_add_ps(a, b); }
  SLUICE_INLINE static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  SLUICE_INLINE static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  SLUICE_INLINE static F div(F a, F b) { return _mm512_div_ps(a, b); }
  SLUICE_INLINE static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // a * b - c
  SLUICE_INLINE static F fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
  // c - a * b
  SLUICE_INLINE static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  // The second where either is NaN.
  SLUICE_INLINE static F max(F a, F b) { return _mm512_max_ps(a, b); }
  SLUICE_INLINE static F min(F a, F b) { return _mm512_min_ps(a, b); }

  // Masks: of the first n lanes (0 <= n <= 16) and of lanes with a < b, and operations with them.
  SLUICE_INLINE static Mask first(int n) { return static_cast<Mask>((1U << n) - 1U); }
  SLUICE_INLINE static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
  SLUICE_INLINE static Mask without(Mask a, Mask b) { return static_cast<Mask>(a & ~b); }
  SLUICE_INLINE static Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  SLUICE_INLINE static F select(Mask mask, F yes, F no) {
    return _mm512_mask_blend_ps(mask, no, yes);
  }

  SLUICE_INLINE static F load(const float* p) { return _mm512_loadu_ps(p); }
  SLUICE_INLINE static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  // The first n elements; the others are zero and not read.
  SLUICE_INLINE static F load(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  SLUICE_INLINE static void store(float* p, F v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }

  // 16 elements of 16 bits, as they are.
  using H = __m256i;
  SLUICE_INLINE static H load_h(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  SLUICE_INLINE static H load_h(const std::uint16_t* p, int n) {
    return _mm256_maskz_loadu_epi16(first(n), p);
  }
  SLUICE_INLINE static void store_h(std::uint16_t* p, H v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  SLUICE_INLINE static void store_h(std::uint16_t* p, H v, int n) {
    _mm256_mask_storeu_epi16(p, first(n), v);
  }
  SLUICE_INLINE static F from_bf16(H h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
  SLUICE_INLINE static F from_f16(H h) { return _mm512_cvtph_ps(h); }
  // 16 codes of E4M3 as float16 numbers of 2^-8 times their value: float16's exponent bias is 15
  // instead of 7.
  SLUICE_INLINE static H load_e4m3(const std::uint8_t* p) {
    return widen_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  SLUICE_INLINE static H load_e4m3(const std::uint8_t* p, int n) {
    return widen_e4m3(_mm_maskz_loadu_epi8(first(n), p));
  }
  SLUICE_INLINE static H to_f16(F v) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // Uses integers, because the BF16 instruction flushes denormals.
  SLUICE_INLINE static H to_bf16(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
  }

  // 32 bfloat16 elements as two vectors: those with even and those with odd index.
  using Pairs = __m512i;
  SLUICE_INLINE static Pairs load_pairs(const std::uint16_t* p) { return _mm512_loadu_si512(p); }
  SLUICE_INLINE static Pairs load_pairs(const std::uint16_t* p, int n) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((std::uint64_t{1} << n) - 1U), p);
  }
  SLUICE_INLINE static F even(Pairs v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
  SLUICE_INLINE static F odd(Pairs v) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }

  // 32 codes of INT8, widened to 16 bits; their products with 32 others are added in pairs,
  // exactly, to 16 sums.
  // Sums have the element type of the instructions: with __m512i, g++ keeps each in two registers.
  using Sums = __v16si;
  using Codes = __m512i;
  static constexpr int kCodes = 32;
  SLUICE_INLINE static Codes load_codes(const std::int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  SLUICE_INLINE static Codes load_codes(const std::int8_t* p, int n) {
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << n) - 1U);
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, p));
  }
  SLUICE_INLINE static Sums add_products(Codes x, Codes w, Sums sums) {
    return sums + reinterpret_cast<Sums>(_mm512_madd_epi16(x, w));
  }
  SLUICE_INLINE static __m128i quarter_sum(Sums sums) {
    const auto v = reinterpret_cast<__m512i>(sums);
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti32x8_epi32(v, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  }
  // The 32 elements of a block of INT4, in BF16: a table of the 16 values that a code can have.
  SLUICE_INLINE static Pairs widen_i4(const std::uint8_t* block) {
    std::int16_t scale = 0;
    __builtin_memcpy(&scale, block, sizeof(scale));
    const F codes = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const F values = _mm512_mul_ps(codes, _mm512_cvtph_ps(_mm256_set1_epi16(scale)));
    return look_up_nibbles(block + sizeof(scale), to_bf16(values));
  }
  // 32 values of a table of 16: those of the low halves of 16 bytes, then those of the high halves.
  SLUICE_INLINE static Pairs look_up_nibbles(const std::uint8_t* p, H table) {
    const __m256i pairs =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i low = _mm256_and_si256(pairs, _mm256_set1_epi16(15));
    const __m512i indices =
        _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_srli_epi16(pairs, 4), 1);
    return _mm512_permutexvar_epi16(indices, _mm512_castsi256_si512(table));
  }
  SLUICE_INLINE static void store_widened(std::uint16_t* p, const std::uint8_t* block) {
    _mm512_storeu_si512(p, widen_i4(block));
  }

  // For blocks of the other types: the F16 at `p` in all lanes, and elements in BF16, which are
  // codes times a scale, or minus a minimum (codes below 16, by a table as above).
  SLUICE_INLINE static F set1_f16(const std::uint8_t* p) {
    std::int16_t half = 0;
    __builtin_memcpy(&half, p, sizeof(half));
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
  }
  SLUICE_INLINE static void store_scaled(std::uint16_t* p, __m128i codes, F scale) {
    const F values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    store_h(p, to_bf16(_mm512_mul_ps(values, scale)));
  }
  SLUICE_INLINE static void store_linear(std::uint16_t* p, __m256i codes, F scale, F minimum) {
    const F all = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const H table = to_bf16(_mm512_sub_ps(_mm512_mul_ps(all, scale), minimum));
    _mm512_storeu_si512(
        p, _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(codes), _mm512_castsi256_si512(table)));
  }

  // 32 elements in BF16: codes below 16 minus a zero point, times a scale.
  SLUICE_INLINE static void store_shifted(std::uint16_t* p, __m256i codes, F scale, float zero) {
    const H table = to_bf16(shifted_values(scale, zero));
    _mm512_storeu_si512(
        p, _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(codes), _mm512_castsi256_si512(table)));
  }
  // 128 elements from 32 words of four codes: codes j of the words are the elements from 32 j on.
  SLUICE_INLINE static void store_four_runs(std::uint16_t* p, const std::uint8_t* words, F scale,
                                            float zero) {
    Pairs runs[4];
    look_up_runs(_mm512_loadu_si512(words), to_bf16(shifted_values(scale, zero)), runs);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_storeu_si512(p + 32 * j, runs[j]);
  }
  // The next four bits of every word are an index into the table, which is there twice, so that the
  // fifth bit of an index does not matter.
  SLUICE_INLINE static void look_up_runs(__m512i words, H table, Pairs (&runs)[4]) {
    const __m512i twice = _mm512_inserti64x4(_mm512_castsi256_si512(table), table, 1);
    runs[0] = _mm512_permutexvar_epi16(words, twice);
    runs[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), twice);
    runs[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), twice);
    runs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), twice);
  }
  // The same as store_shifted() of 16 codes of any value.
  SLUICE_INLINE static void store_shifted(std::uint16_t* p, __m128i codes, F scale, float zero) {
    store_h(p, to_bf16(shifted(codes, scale, zero)));
  }
  // The same as store_linear() of 16 codes of any value.
  SLUICE_INLINE static void store_linear(std::uint16_t* p, __m128i codes, F scale, F minimum) {
    store_h(p, to_bf16(linear(codes, scale, minimum)));
  }
  SLUICE_INLINE static F linear(__m128i codes, F scale, F minimum) {
    const F values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
    return _mm512_sub_ps(_mm512_mul_ps(values, scale), minimum);
  }
  SLUICE_INLINE static F shifted(__m128i codes, F scale, float zero) {
    const F values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
    return _mm512_mul_ps(_mm512_sub_ps(values, _mm512_set1_ps(zero)), scale);
  }
  // The values of the codes 0 to 15.
  SLUICE_INLINE static F shifted_values(F scale, float zero) {
    const F all = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mul_ps(_mm512_sub_ps(all, _mm512_set1_ps(zero)), scale);
  }

  // Whole numbers from -128 to 127.
  SLUICE_INLINE static void store_codes(std::int8_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  // The same two vectors of 32 float16.
  SLUICE_INLINE static F even_f16(Pairs v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
  SLUICE_INLINE static F odd_f16(Pairs v) { return even_f16(_mm512_srli_epi32(v, 16)); }
  SLUICE_INLINE static F as_floats(Pairs v) { return _mm512_castsi512_ps(v); }
  SLUICE_INLINE static Pairs as_pairs(F v) { return _mm512_castps_si512(v); }

  // To the nearest integer, and 2^n for integral n in [-126, 127].
  SLUICE_INLINE static F round(F v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  SLUICE_INLINE static F pow2(F n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }

  // Sums over lanes, always by the same tree: halves, quarters, then (l0 + l2) + (l1 + l3).
  SLUICE_INLINE static __m128 quarter_sum(F v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  // Four vectors at once: quarter i is the quarter_sum() of vector i.
  SLUICE_INLINE static F quarter_sums(F a, F b, F c, F d) {
    const F ab = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    const F cd = add(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    return add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  }
  // Lane i of each quarter: the sum over that quarter of vector i, (l0 + l2) + (l1 + l3).
  SLUICE_INLINE static F lane_sums(F a, F b, F c, F d) {
    const F ab = add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd = add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return add(pair_low(ab, cd), pair_high(ab, cd));
  }
  // The same of whole numbers of 32 bits.
  SLUICE_INLINE static __m512i quarters_of_integers(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab =
        _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xEE));
    const __m512i cd =
        _mm512_add_epi32(_mm512_shuffle_i32x4(c, d, 0x44), _mm512_shuffle_i32x4(c, d, 0xEE));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xDD));
  }
  SLUICE_INLINE static __m512i lanes_of_integers(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
  // Quarter i, or its first half, to row i.
  SLUICE_INLINE static void store_quarters(float* p, std::int64_t stride, F v) {
    _mm_storeu_ps(p, _mm512_castps512_ps128(v));
    _mm_storeu_ps(p + stride, _mm512_extractf32x4_ps(v, 1));
    _mm_storeu_ps(p + 2 * stride, _mm512_extractf32x4_ps(v, 2));
    _mm_storeu_ps(p + 3 * stride, _mm512_extractf32x4_ps(v, 3));
  }
  SLUICE_INLINE static void store_half_quarters(float* p, std::int64_t stride, F v) {
    const auto put = [](float* to, __m128 quarter) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_castps_si128(quarter));
    };
    put(p, _mm512_castps512_ps128(v));
    put(p + stride, _mm512_extractf32x4_ps(v, 1));
    put(p + 2 * stride, _mm512_extractf32x4_ps(v, 2));
    put(p + 3 * stride, _mm512_extractf32x4_ps(v, 3));
  }
  // The first pair of each quarter, then the second pairs.
  SLUICE_INLINE static void store_pairs_apart(float* p, F v) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    store(p, _mm512_castpd_ps(_mm512_permutexvar_pd(order, _mm512_castps_pd(v))));
  }
  SLUICE_INLINE static float max_lane(F v) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

  // In each lane of 4 floats: rows[i][j] becomes rows[j][i].
  SLUICE_INLINE static void transpose_lanes(F* rows) {
    const F low = _mm512_unpacklo_ps(rows[0], rows[1]);
    const F high = _mm512_unpackhi_ps(rows[0], rows[1]);
    const F next_low = _mm512_unpacklo_ps(rows[2], rows[3]);
    const F next_high = _mm512_unpackhi_ps(rows[2], rows[3]);
    rows[0] = pair_low(low, next_low);
    rows[1] = pair_high(low, next_low);
    rows[2] = pair_low(high, next_high);
    rows[3] = pair_high(high, next_high);
  }

  // rows[i][j] becomes rows[j][i].
  SLUICE_INLINE static void transpose(F (&rows)[16]) {
    F u[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) u[i] = rows[i];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) transpose_lanes(u + i);
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      const F a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88);
      const F b = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xDD);
      const F c = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
      const F d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xDD);
      rows[i] = _mm512_shuffle_f32x4(a, c, 0x88);
      rows[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
      rows[i + 8] = _mm512_shuffle_f32x4(a, c, 0xDD);
      rows[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
    }
  }

 protected:
  SLUICE_INLINE static F pair_low(F a, F b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  SLUICE_INLINE static F pair_high(F a, F b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }

 private:
  // Sign extension fills the bits above the sign, and a mask keeps only the topmost one. Adding to
  // the magnitude overflows for NaN only; the carry makes the float16 a NaN too.
  SLUICE_INLINE static H widen_e4m3(__m128i codes) {
    const __m256i moved = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                           _mm256_set1_epi16(static_cast<short>(0xBF80)));
    const __m256i carried = _mm256_add_epi16(_mm256_and_si256(moved, _mm256_set1_epi16(0x3F80)),
                                             _mm256_set1_epi16(0x80));
    return _mm256_or_si256(moved, _mm256_and_si256(carried, _mm256_set1_epi16(0x4000)));
  }
};

}  // namespace sluice::kernels
