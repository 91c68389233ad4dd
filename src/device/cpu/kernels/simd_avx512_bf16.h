// Avx512Bf16: Avx512 with the instruction that rounds to BF16.
// Included by kernels_avx512_bf16.cpp and kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include <array>

#include "device/cpu/kernels/simd_avx512.h"
#include "tensor/dtype.h"

namespace sluice::kernels {

// The bytes of codes of two blocks of INT4, as words; those of the first block begin at `first`.
// Not inline: see check_symbols.cmake.
template <int first>
alignas(64) static constexpr std::array<std::uint8_t, 64> kCodesOfPair = [] {
  std::array<std::uint8_t, 64> order{};
  for (int i = 0; i < 64; ++i) {
    order[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(first + i % 32 / 2 + i / 32 * block_of(DType::kI4).bytes);
  }
  return order;
}();

// Rounds elements of blocks to BF16 with the instruction. It flushes denormals, which the product
// would count as zero too.
struct Avx512Bf16 : Avx512 {
  SLUICE_INLINE static void store_widened(std::uint16_t* p, const std::uint8_t* block) {
    _mm512_storeu_si512(p, widen_i4(block, [](F v) { return narrow(v); }));
  }
  SLUICE_INLINE static void store_scaled(std::uint16_t* p, __m128i codes, F scale) {
    Avx512::store_scaled(p, codes, scale, [](F v) { return narrow(v); });
  }
  SLUICE_INLINE static void store_linear(std::uint16_t* p, __m256i codes, F scale, F minimum) {
    Avx512::store_linear(p, codes, scale, minimum, [](F v) { return narrow(v); });
  }
  SLUICE_INLINE static void store_shifted(std::uint16_t* p, __m256i codes, F scale, float zero) {
    Avx512::store_shifted(p, codes, scale, zero, [](F v) { return narrow(v); });
  }
  SLUICE_INLINE static void store_four_runs(std::uint16_t* p, std::int64_t step,
                                            const std::uint8_t* words, F scale, float zero) {
    Avx512::store_four_runs(p, step, words, scale, zero, [](F v) { return narrow(v); });
  }
  SLUICE_INLINE static void store_shifted(std::uint16_t* p, __m128i codes, F scale, float zero) {
    store_h(p, narrow(shifted(codes, scale, zero)));
  }
  SLUICE_INLINE static void store_linear(std::uint16_t* p, __m128i codes, F scale, F minimum) {
    store_h(p, narrow(linear(codes, scale, minimum)));
  }

  // 16 elements each, rounded to BF16, as 32.
  SLUICE_INLINE static Pairs to_pairs(F first, F second) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  }
  // Each of the first (or last) 16 elements of a vector, followed by the same one of another.
  SLUICE_INLINE static Pairs interleave_low(Pairs even, Pairs odd) {
    return _mm512_permutex2var_epi16(even, interleaved(0), odd);
  }
  SLUICE_INLINE static Pairs interleave_high(Pairs even, Pairs odd) {
    return _mm512_permutex2var_epi16(even, interleaved(16), odd);
  }
  // Adds the products of 16 pairs.
  SLUICE_INLINE static F add_pairs(__m512i x, __m512i w, F sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
  // Eight blocks of INT4, two at a time: their scales first.
  struct EightI4 {
    static constexpr int kBytes = 144;
    alignas(32) float scales[8];

    SLUICE_INLINE void read_scales(const std::uint8_t* blocks) {
      const __m128i places = _mm_setr_epi16(0, 9, 18, 27, 36, 45, 54, 63);
      const __m512i halves =
          _mm512_permutex2var_epi16(_mm512_loadu_si512(blocks), _mm512_castsi128_si512(places),
                                    _mm512_loadu_si512(blocks + 64));
      _mm256_store_ps(scales, _mm256_cvtph_ps(_mm512_castsi512_si128(halves)));
      // Scales are to come from memory, where a broadcast is part of a load; the compiler would
      // shuffle them out of the register, on the unit that the rest waits for.
      asm volatile("" : "+m"(scales));
    }
    // Writes blocks 2 * pair and the next one, `step` elements apart. They share a table of 64
    // bytes: the sixth bit of an index says which half, the next four are the code, the last one
    // says which byte of the element. Words would take twice the instructions to look up.
    SLUICE_INLINE void store_pair(std::uint16_t* p, std::int64_t step, const std::uint8_t* blocks,
                                  int pair) const {
      const F all = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
      const __m512i table =
          to_pairs(mul(all, set1(scales[2 * pair])), mul(all, set1(scales[2 * pair + 1])));
      // The last 64 bytes hold the last pair from their 30th byte on.
      const bool last = pair == 3;
      const __m512i words = _mm512_permutexvar_epi8(
          _mm512_load_si512(last ? kCodesOfPair<30>.data() : kCodesOfPair<2>.data()),
          _mm512_loadu_si512(blocks + (last ? kBytes - 64 : 36 * pair)));
      const __m512i code = _mm512_set1_epi8(0x1E);
      const __m512i which =
          _mm512_inserti64x4(_mm512_set1_epi16(0x0100), _mm256_set1_epi16(0x2120), 1);
      constexpr int kAndOr = 0xEA;  // (a & b) | c
      const __m512i low = _mm512_permutexvar_epi8(
          _mm512_ternarylogic_epi64(_mm512_slli_epi16(words, 1), code, which, kAndOr), table);
      const __m512i high = _mm512_permutexvar_epi8(
          _mm512_ternarylogic_epi64(_mm512_srli_epi16(words, 3), code, which, kAndOr), table);
      store_h(p, _mm512_castsi512_si256(low));
      store_h(p + 16, _mm512_castsi512_si256(high));
      store_h(p + step, _mm512_extracti64x4_epi64(low, 1));
      store_h(p + step + 16, _mm512_extracti64x4_epi64(high, 1));
    }
  };

  // A block of Q4_K: `halves` begins with the factors of scales and of minima, `words` holds the 8
  // scales and the 8 minima. Two groups share 32 bytes of codes and one table of 32 elements.
  SLUICE_INLINE static void store_linear_groups(std::uint16_t* p, std::int64_t step,
                                                const std::uint8_t* codes,
                                                const std::uint8_t* halves,
                                                const std::uint32_t* words) {
    const __m128i integers =
        _mm_set_epi64x(static_cast<std::int64_t>(std::uint64_t{words[3]} << 32 | words[2]),
                       static_cast<std::int64_t>(std::uint64_t{words[1]} << 32 | words[0]));
    const F factors = _mm512_mask_blend_ps(0xFF00, set1_f16(halves), set1_f16(halves + 2));
    alignas(64) float of_groups[16];
    _mm512_store_ps(of_groups, mul(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(integers))));
    const F all = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int group = 0; group < 8; group += 2, codes += 32, p += 2 * step) {
      const F low = sub(mul(all, set1(of_groups[group])), set1(of_groups[8 + group]));
      const F high = sub(mul(all, set1(of_groups[group + 1])), set1(of_groups[9 + group]));
      const __m512i table = to_pairs(low, high);
      const __m512i pairs =
          _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
      const __m512i first = _mm512_and_si512(pairs, _mm512_set1_epi16(15));
      const __m512i second = _mm512_or_si512(_mm512_srli_epi16(pairs, 4), _mm512_set1_epi16(16));
      _mm512_storeu_si512(p, _mm512_permutexvar_epi16(first, table));
      _mm512_storeu_si512(p + step, _mm512_permutexvar_epi16(second, table));
    }
  }

  // A block of Q6_K: 16 runs of 16 codes, each with a scale.
  struct RunsOf16 {
    alignas(64) float scales[16];
    alignas(64) std::int8_t codes[256];

    SLUICE_INLINE void read(const std::uint8_t* block) {
      const __m128i integers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192));
      _mm512_store_ps(
          scales, mul(set1_f16(block + 208), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers))));
      const __m512i nibble = _mm512_set1_epi8(15);
      const __m512i top = _mm512_set1_epi8(0x30);
      const __m512i middle = _mm512_set1_epi8(32);
      const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
      const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        // 32 bytes of high bits serve four times 32 elements, two bits each.
        const __m512i low = _mm512_loadu_si512(block + 64 * half);
        const __m512i high = _mm512_broadcast_i64x4(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 128 + 32 * half)));
        const __m512i first = join(low, _mm512_sllv_epi16(high, left), nibble, top);
        const __m512i second =
            join(_mm512_srli_epi16(low, 4), _mm512_srlv_epi16(high, right), nibble, top);
        _mm512_store_si512(codes + 128 * half, _mm512_sub_epi8(first, middle));
        _mm512_store_si512(codes + 128 * half + 64, _mm512_sub_epi8(second, middle));
      }
    }
    // Two runs.
    SLUICE_INLINE __m512i line(int i) const {
      return to_pairs(scaled(codes + 32 * i, scales[2 * i]),
                      scaled(codes + 32 * i + 16, scales[2 * i + 1]));
    }
  };
  SLUICE_INLINE static void store_runs_of_16(std::uint16_t* p, std::int64_t step,
                                             const std::uint8_t* block) {
    RunsOf16 runs;
    runs.read(block);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i, p += step) _mm512_storeu_si512(p, runs.line(i));
  }

 private:
  SLUICE_INLINE static __m512i interleaved(int first) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i both = _mm512_or_si512(lanes, _mm512_slli_epi32(lanes, 16));
    return _mm512_add_epi32(both, _mm512_set1_epi32((first + 32) << 16 | first));
  }
  SLUICE_INLINE static F scaled(const std::int8_t* codes, float scale) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
    return mul(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), set1(scale));
  }
  // The bits of `low` in one mask and those of `high` in the other.
  SLUICE_INLINE static __m512i join(__m512i low, __m512i high, __m512i low_mask,
                                    __m512i high_mask) {
    return _mm512_or_si512(_mm512_and_si512(low, low_mask), _mm512_and_si512(high, high_mask));
  }
  SLUICE_INLINE static H narrow(F v) { return reinterpret_cast<H>(_mm512_cvtneps_pbh(v)); }
};

}  // namespace sluice::kernels
