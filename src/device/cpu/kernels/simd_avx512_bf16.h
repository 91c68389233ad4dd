// Avx512Bf16: Avx512 with the instruction that rounds to BF16.
// Included by kernels_avx512_bf16.cpp and kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/simd_avx512.h"

namespace sluice::kernels {

struct Avx512Bf16 : Avx512 {
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

 private:
  SLUICE_INLINE static __m512i interleaved(int first) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i both = _mm512_or_si512(lanes, _mm512_slli_epi32(lanes, 16));
    return _mm512_add_epi32(both, _mm512_set1_epi32((first + 32) << 16 | first));
  }
};

}  // namespace sluice::kernels
