// Elements of kI4 (dtype.h), one block at a time. Scalar code for reference kernels, the loader and
// tests; fast kernels use vector instructions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace sluice {

inline constexpr std::size_t kInt4Elements = 32;
inline constexpr std::size_t kInt4Bytes = 18;
static_assert(block_of(DType::kI4).elements == kInt4Elements);
static_assert(block_of(DType::kI4).bytes == kInt4Bytes);

using Int4Block = std::array<std::uint8_t, kInt4Bytes>;

// The code of an element of a block, from -8 to 7.
inline int int4_code(const std::uint8_t* block, std::int64_t place) {
  const int pair = block[2 + place % 16];
  return (place < 16 ? pair & 15 : pair >> 4) - 8;
}

// The element of the largest magnitude gets the code 0 and so the value -8 * scale; the others are
// rounded to the nearest code. REQUIRES: finite elements, of at most 2^18.
inline Int4Block quantize_int4(std::span<const float, kInt4Elements> values) {
  float largest = 0.0F;
  for (const float value : values) {
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  const std::uint16_t bits = float_to_f16(largest / -8.0F);
  const float scale = f16_to_float(bits);
  const auto code = [&](float value) {
    if (scale == 0.0F) return 8;
    return static_cast<int>(std::clamp(round_to_even(value / scale) + 8.0F, 0.0F, 15.0F));
  };
  Int4Block block{};
  std::memcpy(block.data(), &bits, sizeof(bits));
  for (std::size_t i = 0; i < 16; ++i) {
    block[2 + i] = static_cast<std::uint8_t>(code(values[i]) | code(values[16 + i]) << 4);
  }
  return block;
}

}  // namespace sluice
