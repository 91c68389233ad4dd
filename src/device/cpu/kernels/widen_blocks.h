// The types of weights that are stored in blocks (tensor/dtype.h): how each block is widened to
// BF16. The order of roundings is that of the reference (tensor/gguf_blocks.h): each product and
// each difference is rounded to F32, then the element to BF16. Included by kernels_*.cpp only; see
// simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "device/cpu/kernels/inline.h"
#include "tensor/dtype.h"

namespace sluice::kernels {

SLUICE_INLINE static __m128i load_16_bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

struct BlocksOfI4 {
  static constexpr DType kDType = DType::kI4;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t /*step*/ = 32) {
    S::store_widened(to, block);
  }
};

struct BlocksOfQ8 {
  static constexpr DType kDType = DType::kQ8_0;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t /*step*/ = 32) {
    const typename S::F scale = S::set1_f16(block);
    S::store_scaled(to, load_16_bytes(block + 2), scale);
    S::store_scaled(to + 16, load_16_bytes(block + 18), scale);
  }
};

struct BlocksOfQ4K {
  static constexpr DType kDType = DType::kQ4K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t step = 32) {
    std::uint32_t words[4];
    unpack(block + 4, words);
    if constexpr (requires { S::store_linear_groups(to, step, block + 16, block, words); }) {
      return S::store_linear_groups(to, step, block + 16, block, words);
    }
    std::uint8_t scales[8];
    std::uint8_t minima[8];
    __builtin_memcpy(scales, words, 8);
    __builtin_memcpy(minima, words + 2, 8);
    const typename S::F factor = S::set1_f16(block);
    const typename S::F minimum = S::set1_f16(block + 2);
    const __m256i nibble = _mm256_set1_epi8(15);
    for (int pair = 0; pair < 4; ++pair) {
      const __m256i codes =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 16 + 32 * pair));
      const __m256i halves[2] = {_mm256_and_si256(codes, nibble),
                                 _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int group = 2 * pair + half;
        S::store_linear(to + step * group, halves[half],
                        S::mul(factor, S::set1(static_cast<float>(scales[group]))),
                        S::mul(minimum, S::set1(static_cast<float>(minima[group]))));
      }
    }
  }

  // The 6-bit scales of the 8 groups, then their minima, from 12 bytes: four at a time.
  SLUICE_INLINE static void unpack(const std::uint8_t* packed, std::uint32_t* words) {
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    __builtin_memcpy(&first, packed, 4);
    __builtin_memcpy(&second, packed + 4, 4);
    __builtin_memcpy(&third, packed + 8, 4);
    words[0] = first & 0x3F3F3F3FU;
    words[1] = (third & 0x0F0F0F0FU) | (first >> 6 & 0x03030303U) << 4;
    words[2] = second & 0x3F3F3F3FU;
    words[3] = (third >> 4 & 0x0F0F0F0FU) | (second >> 6 & 0x03030303U) << 4;
  }
};

struct BlocksOfQ6K {
  static constexpr DType kDType = DType::kQ6K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t step = 32) {
    if constexpr (requires { S::store_runs_of_16(to, step, block); }) {
      return S::store_runs_of_16(to, step, block);
    }
    const typename S::F factor = S::set1_f16(block + 208);
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 2; ++part) {
        // 16 bytes of high bits serve four runs of 16 elements, 32 elements apart.
        const std::uint8_t* const low = block + 64 * half + 16 * part;
        const __m128i high = load_16_bytes(block + 128 + 32 * half + 16 * part);
        const __m128i first = load_16_bytes(low);
        const __m128i second = load_16_bytes(low + 32);
        const __m128i codes[4] = {join(first, high), join(second, _mm_srli_epi16(high, 2)),
                                  join(_mm_srli_epi16(first, 4), _mm_srli_epi16(high, 4)),
                                  join(_mm_srli_epi16(second, 4), _mm_srli_epi16(high, 6))};
#pragma GCC unroll 4
        for (int quarter = 0; quarter < 4; ++quarter) {
          const int run = 8 * half + 2 * quarter + part;
          const auto scale = static_cast<float>(static_cast<std::int8_t>(block[192 + run]));
          S::store_scaled(to + step * (run / 2) + 16 * (run % 2), codes[quarter],
                          S::mul(factor, S::set1(scale)));
        }
      }
    }
  }

 private:
  // 16 codes, from the low 4 bits of `low` and the low 2 bits of `high`.
  SLUICE_INLINE static __m128i join(__m128i low, __m128i high) {
    const __m128i code = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
                                      _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4));
    return _mm_sub_epi8(code, _mm_set1_epi8(32));
  }
};

struct BlocksOfU4G32 {
  static constexpr DType kDType = DType::kU4G32;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t /*step*/ = 32) {
    const __m128i pairs = load_16_bytes(block + 3);
    const __m256i codes =
        _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs), _mm256_set1_epi8(15));
    S::store_shifted(to, codes, S::set1_f16(block), static_cast<float>(block[2]));
  }
};

struct BlocksOfU4G128 {
  static constexpr DType kDType = DType::kU4G128;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t step = 32) {
    float scale = 0.0F;
    __builtin_memcpy(&scale, block, sizeof(scale));
    S::store_four_runs(to, step, block + 5, S::set1(scale), static_cast<float>(block[4]));
  }
};

struct BlocksOfU8G128 {
  static constexpr DType kDType = DType::kU8G128;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block,
                                  std::int64_t step = 32) {
    float scale = 0.0F;
    __builtin_memcpy(&scale, block, sizeof(scale));
    for (int i = 0; i < 128; i += 16) {
      S::store_shifted(to + i / 32 * step + i % 32, load_16_bytes(block + 5 + i), S::set1(scale),
                       static_cast<float>(block[4]));
    }
  }
};

// Calls f with the type of a dtype that is stored in blocks.
template <class Function>
SLUICE_INLINE void with_blocks(DType dtype, const Function& f) {
  switch (dtype) {
    case DType::kQ8_0: return f(BlocksOfQ8());
    case DType::kQ4K: return f(BlocksOfQ4K());
    case DType::kQ6K: return f(BlocksOfQ6K());
    case DType::kU4G32: return f(BlocksOfU4G32());
    case DType::kU4G128: return f(BlocksOfU4G128());
    case DType::kU8G128: return f(BlocksOfU8G128());
    default: return f(BlocksOfI4());
  }
}

}  // namespace sluice::kernels
