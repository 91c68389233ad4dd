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

SLUICE_INLINE static __m256i load_32_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

struct BlocksOfI4 {
  static constexpr DType kDType = DType::kI4;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    S::store_widened(to, block);
  }
};

// 16 bytes of nibbles: the low halves, then the high ones.
SLUICE_INLINE static __m256i nibbles_of(__m128i pairs) {
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs), _mm256_set1_epi8(15));
}

// Q4_1, Q5_0 and Q5_1.
template <DType dtype>
struct BlocksOfLegacy {
  static constexpr DType kDType = dtype;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    constexpr bool kFifth = dtype != DType::kQ4_1;
    const typename S::F scale = S::set1_f16(block);
    __m256i codes = nibbles_of(load_16_bytes(block + block_of(dtype).bytes - 16));
    if (kFifth) codes = _mm256_or_si256(codes, fifth_bits(block + (has_minimum(dtype) ? 4 : 2)));
    const __m128i halves[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      if (has_minimum(dtype)) {
        const typename S::F minimum = S::sub(S::zero(), S::set1_f16(block + 2));
        S::store_linear(to + 16 * half, halves[half], scale, minimum);
      } else {
        S::store_shifted(to + 16 * half, halves[half], scale, 16.0F);
      }
    }
  }

 private:
  // Bit i as the fifth one of byte i.
  SLUICE_INLINE static __m256i fifth_bits(const std::uint8_t* packed) {
    int bits = 0;
    __builtin_memcpy(&bits, packed, sizeof(bits));
    const __m256i bytes = _mm256_shuffle_epi8(
        _mm256_set1_epi32(bits),
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i place = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201U));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, place), place);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
  }
};

// The values that codes of IQ4_NL and IQ4_XS name (kIq4Values), with 128 added or not.
template <bool flipped>
SLUICE_INLINE static __m128i iq4_values() {
  const __m128i values =
      _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return flipped ? _mm_xor_si128(values, _mm_set1_epi8(-128)) : values;
}

template <DType dtype>
struct BlocksOfIq4 {
  static constexpr DType kDType = dtype;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    const typename S::F factor = S::set1_f16(block);
    if constexpr (dtype == DType::kIq4Nl) {
      store<S>(to, block + 2, factor);
    } else {
      std::uint16_t upper = 0;
      __builtin_memcpy(&upper, block + 2, sizeof(upper));
      for (int group = 0; group < 8; ++group) {
        const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        const int scale = (low | (upper >> 2 * group & 3) << 4) - 32;
        store<S>(to + 32 * group, block + 8 + 16 * group,
                 S::mul(factor, S::set1(static_cast<float>(scale))));
      }
    }
  }

 private:
  template <class S>
  SLUICE_INLINE static void store(std::uint16_t* to, const std::uint8_t* pairs,
                                  typename S::F scale) {
    const __m256i codes = nibbles_of(load_16_bytes(pairs));
    const __m128i values = iq4_values<false>();
    S::store_scaled(to, _mm_shuffle_epi8(values, _mm256_castsi256_si128(codes)), scale);
    S::store_scaled(to + 16, _mm_shuffle_epi8(values, _mm256_extracti128_si256(codes, 1)), scale);
  }
};

struct BlocksOfQ8 {
  static constexpr DType kDType = DType::kQ8_0;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    const typename S::F scale = S::set1_f16(block);
    S::store_scaled(to, load_16_bytes(block + 2), scale);
    S::store_scaled(to + 16, load_16_bytes(block + 18), scale);
  }
};

// The 6-bit scales of the 8 groups, then their minima, from 12 bytes: four at a time.
SLUICE_INLINE static void unpack_linear(const std::uint8_t* packed, std::uint32_t* words) {
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

// The scales and minima of a block of Q4_K or Q5_K, from what unpack_linear() made.
template <class S>
class LinearScales {
 public:
  using F = typename S::F;
  SLUICE_INLINE LinearScales(const std::uint8_t* block, const std::uint32_t* words)
      : factor_(S::set1_f16(block)), minimum_(S::set1_f16(block + 2)) {
    __builtin_memcpy(integers_, words, sizeof(integers_));
  }
  SLUICE_INLINE F scale(int group) const { return times(factor_, integers_[group]); }
  SLUICE_INLINE F minimum(int group) const { return times(minimum_, integers_[8 + group]); }

 private:
  SLUICE_INLINE static F times(F factor, std::uint8_t integer) {
    return S::mul(factor, S::set1(static_cast<float>(integer)));
  }
  F factor_;
  F minimum_;
  std::uint8_t integers_[16];  // scales of the groups, then minima
};

struct BlocksOfQ4K {
  static constexpr DType kDType = DType::kQ4K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    std::uint32_t words[4];
    unpack_linear(block + 4, words);
    const LinearScales<S> scales(block, words);
    const __m256i nibble = _mm256_set1_epi8(15);
    for (int pair = 0; pair < 4; ++pair) {
      const __m256i codes = load_32_bytes(block + 16 + 32 * pair);
      const __m256i halves[2] = {_mm256_and_si256(codes, nibble),
                                 _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int group = 2 * pair + half;
        S::store_linear(to + 32 * group, halves[half], scales.scale(group), scales.minimum(group));
      }
    }
  }
};

struct BlocksOfQ5K {
  static constexpr DType kDType = DType::kQ5K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    std::uint32_t words[4];
    unpack_linear(block + 4, words);
    const LinearScales<S> scales(block, words);
    const __m256i high = load_32_bytes(block + 16);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i fifth = _mm256_set1_epi8(16);
    for (int pair = 0; pair < 4; ++pair) {
      const __m256i codes = load_32_bytes(block + 48 + 32 * pair);
      const __m256i bits = _mm256_srl_epi16(high, _mm_cvtsi32_si128(2 * pair));
      const __m256i halves[2] = {
          _mm256_or_si256(_mm256_and_si256(codes, nibble),
                          _mm256_and_si256(_mm256_slli_epi16(bits, 4), fifth)),
          _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble),
                          _mm256_and_si256(_mm256_slli_epi16(bits, 3), fifth))};
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int group = 2 * pair + half;
        const auto scale = scales.scale(group);
        const auto least = scales.minimum(group);
        std::uint16_t* const p = to + 32 * group;
        S::store_linear(p, _mm256_castsi256_si128(halves[half]), scale, least);
        S::store_linear(p + 16, _mm256_extracti128_si256(halves[half], 1), scale, least);
      }
    }
  }
};

struct BlocksOfQ2K {
  static constexpr DType kDType = DType::kQ2K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    const typename S::F factor = S::set1_f16(block + 80);
    const typename S::F minimum = S::set1_f16(block + 82);
    const __m256i low_bits = _mm256_set1_epi8(3);
    const auto times = [](typename S::F by, int number) {
      return S::mul(by, S::set1(static_cast<float>(number)));
    };
    for (int line = 0; line < 8; ++line) {
      const __m256i codes =
          _mm256_and_si256(_mm256_srl_epi16(load_32_bytes(block + 16 + line / 4 * 32),
                                            _mm_cvtsi32_si128(line % 4 * 2)),
                           low_bits);
      const int first = block[2 * line];
      const int second = block[2 * line + 1];
      std::uint16_t* const p = to + 32 * line;
      S::store_linear(p, _mm256_castsi256_si128(codes), times(factor, first & 15),
                      times(minimum, first >> 4));
      S::store_linear(p + 16, _mm256_extracti128_si256(codes, 1), times(factor, second & 15),
                      times(minimum, second >> 4));
    }
  }
};

struct BlocksOfQ3K {
  static constexpr DType kDType = DType::kQ3K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    const typename S::F factor = S::set1_f16(block + 108);
    std::int8_t scales[16];
    unpack(block + 96, scales);
    const __m256i high = load_32_bytes(block);
    const __m256i low_bits = _mm256_set1_epi8(3);
    const __m256i third = _mm256_set1_epi8(4);
    for (int line = 0; line < 8; ++line) {
      const __m256i low = _mm256_srl_epi16(load_32_bytes(block + 32 + line / 4 * 32),
                                           _mm_cvtsi32_si128(line % 4 * 2));
      const __m256i bits = _mm256_slli_epi16(_mm256_srl_epi16(high, _mm_cvtsi32_si128(line)), 2);
      const __m256i codes = _mm256_sub_epi8(
          _mm256_or_si256(_mm256_and_si256(low, low_bits), _mm256_and_si256(bits, third)), third);
      std::uint16_t* const p = to + 32 * line;
      S::store_scaled(p, _mm256_castsi256_si128(codes), scaled<S>(factor, scales[2 * line]));
      S::store_scaled(p + 16, _mm256_extracti128_si256(codes, 1),
                      scaled<S>(factor, scales[2 * line + 1]));
    }
  }

 private:
  template <class S>
  SLUICE_INLINE static typename S::F scaled(typename S::F factor, std::int8_t scale) {
    return S::mul(factor, S::set1(static_cast<float>(scale)));
  }
  // 16 scales of 6 bits, less 32, from 12 bytes: four at a time.
  SLUICE_INLINE static void unpack(const std::uint8_t* packed, std::int8_t (&scales)[16]) {
    std::uint32_t low[2];
    std::uint32_t upper = 0;
    __builtin_memcpy(low, packed, 8);
    __builtin_memcpy(&upper, packed + 8, 4);
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t four =
          (low[i % 2] >> i / 2 * 4 & 0x0F0F0F0FU) | (upper >> 2 * i & 0x03030303U) << 4;
      for (int k = 0; k < 4; ++k) {
        scales[4 * i + k] = static_cast<std::int8_t>(static_cast<int>(four >> 8 * k & 63) - 32);
      }
    }
  }
};

struct BlocksOfQ6K {
  static constexpr DType kDType = DType::kQ6K;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
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
          S::store_scaled(to + 16 * run, codes[quarter], S::mul(factor, S::set1(scale)));
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
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    S::store_shifted(to, nibbles_of(load_16_bytes(block + 3)), S::set1_f16(block),
                     static_cast<float>(block[2]));
  }
};

struct BlocksOfU4G128 {
  static constexpr DType kDType = DType::kU4G128;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    float scale = 0.0F;
    __builtin_memcpy(&scale, block, sizeof(scale));
    S::store_four_runs(to, block + 5, S::set1(scale), static_cast<float>(block[4]));
  }
};

struct BlocksOfU8G128 {
  static constexpr DType kDType = DType::kU8G128;
  template <class S>
  SLUICE_INLINE static void widen(std::uint16_t* to, const std::uint8_t* block) {
    float scale = 0.0F;
    __builtin_memcpy(&scale, block, sizeof(scale));
    for (int i = 0; i < 128; i += 16) {
      S::store_shifted(to + i, load_16_bytes(block + 5 + i), S::set1(scale),
                       static_cast<float>(block[4]));
    }
  }
};

// Calls f with the type of a dtype that is stored in blocks.
template <class Function>
SLUICE_INLINE void with_blocks(DType dtype, const Function& f) {
  switch (dtype) {
    case DType::kQ4_1: return f(BlocksOfLegacy<DType::kQ4_1>());
    case DType::kQ5_0: return f(BlocksOfLegacy<DType::kQ5_0>());
    case DType::kQ5_1: return f(BlocksOfLegacy<DType::kQ5_1>());
    case DType::kQ8_0: return f(BlocksOfQ8());
    case DType::kIq4Nl: return f(BlocksOfIq4<DType::kIq4Nl>());
    case DType::kIq4Xs: return f(BlocksOfIq4<DType::kIq4Xs>());
    case DType::kQ2K: return f(BlocksOfQ2K());
    case DType::kQ3K: return f(BlocksOfQ3K());
    case DType::kQ5K: return f(BlocksOfQ5K());
    case DType::kQ4K: return f(BlocksOfQ4K());
    case DType::kQ6K: return f(BlocksOfQ6K());
    case DType::kU4G32: return f(BlocksOfU4G32());
    case DType::kU4G128: return f(BlocksOfU4G128());
    case DType::kU8G128: return f(BlocksOfU8G128());
    default: return f(BlocksOfI4());
  }
}

}  // namespace sluice::kernels
