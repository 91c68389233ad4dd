// Avx512Bf16: Avx512 with the instruction that rounds to BF16.
// Included by kernels_avx512_bf16.cpp and kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/simd_avx512.h"

namespace sluice::kernels {

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

 private:
  SLUICE_INLINE static H narrow(F v) { return reinterpret_cast<H>(_mm512_cvtneps_pbh(v)); }
};

}  // namespace sluice::kernels
