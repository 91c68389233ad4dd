// Conversion between float and 8-bit E4M3FN codes: 4 bits of exponent with bias 7, 3 bits of
// mantissa, values up to 448. There are no infinities; only 0x7F and 0xFF are NaN. Rounding is to
// nearest even. Larger values and infinities become 448 with their sign, as in published
// checkpoints; NaN stays NaN. Scalar code; the fast kernels convert in registers.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace sluice {

inline constexpr float kLargestE4M3 = 448.0F;

constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000U);
  // The same bits read as a float16 have exponent bias 15 instead of 7, so their value is 2^-8 of
  // the code's, also for subnormals.
  const float small = f16_to_float(static_cast<std::uint16_t>(magnitude << 7));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small * 0x1p8F));
}

constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint8_t>(sign | 0x7FU);
  if (magnitude >= 0x43E00000U) return static_cast<std::uint8_t>(sign | 0x7EU);  // 448 and more
  if (magnitude < 0x3C800000U) {  // below 2^-6: a multiple of 2^-9
    // Adding 2^14 leaves the multiple in the low bits, rounded to nearest even by the addition.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x46800000U));
  }
  const std::uint32_t rebased = magnitude - 0x3C000000U;  // the exponent's bias: 127 - 7
  const std::uint32_t rounded = rebased + 0x7FFFFU + ((rebased >> 20) & 1U);
  return static_cast<std::uint8_t>(sign | (rounded >> 20));
}

}  // namespace sluice
