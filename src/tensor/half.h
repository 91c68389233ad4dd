// bfloat16 and float16 as 16-bit patterns, converted to and from float. Rounding is to nearest
// even, as every framework and the hardware instructions do; NaN stays a (quiet) NaN.
// Scalar code for reference kernels, tests and loop tails; fast kernels use vector instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  std::uint32_t shift = 0;
  while ((mantissa & 0x400U) == 0) {
    mantissa <<= 1;
    ++shift;
  }
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | ((mantissa & 0x3FFU) << 13));
}

constexpr std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // overflow
  if (magnitude < 0x38800000U) {  // subnormal result: value = mantissa * 2^-24
    if (magnitude < 0x33000000U) return sign;
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t shift = 126 - exponent;
    const std::uint32_t half = 1U << (shift - 1);
    std::uint32_t result = mantissa >> shift;
    const std::uint32_t rest = mantissa & ((1U << shift) - 1);
    if (rest > half || (rest == half && (result & 1U) != 0)) ++result;
    return static_cast<std::uint16_t>(sign | result);
  }
  const std::uint32_t rebased = magnitude - 0x38000000U;
  const std::uint32_t rounded = rebased + 0xFFFU + ((rebased >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

// The nearest whole number, ties to even, without a call: the addition rounds. REQUIRES: |value| is
// at most 2^22.
constexpr float round_to_even(float value) { return value + 0x1.8p23F - 0x1.8p23F; }

}  // namespace sluice
