// Elements of weights in blocks (dtype.h), one element at a time: the types of GGUF files, and
// those that checkpoints of other tools are packed to. Scalar code for reference kernels and tests;
// fast kernels use vector instructions. The order of roundings is that of the format's reference
// code, so that values agree with it bit for bit: each product and each difference is rounded to
// F32. Pure functions; any thread. No alignment is required.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/int4.h"

namespace sluice {

inline float half_at(const std::uint8_t* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return f16_to_float(bits);
}

inline float q8_0_element(const std::uint8_t* block, std::int64_t place) {
  return half_at(block) * static_cast<float>(static_cast<std::int8_t>(block[2 + place]));
}

// The 6-bit scale and minimum of one of the 8 groups of a kQ4K block. The 12 bytes hold the low 6
// bits of the first four scales, then of the first four minima; the upper bits of these bytes and
// the last four bytes hold those of the other groups.
struct Q4KGroup {
  int scale;
  int minimum;
};
inline Q4KGroup q4_k_group(const std::uint8_t* packed, std::int64_t group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4),
          (packed[group + 4] >> 4) | (packed[group] >> 6 << 4)};
}

inline int q4_k_code(const std::uint8_t* block, std::int64_t place) {
  const int pair = block[16 + place / 64 * 32 + place % 32];
  return place % 64 < 32 ? pair & 15 : pair >> 4;
}

inline float q4_k_element(const std::uint8_t* block, std::int64_t place) {
  const Q4KGroup group = q4_k_group(block + 4, place / 32);
  const float scale = half_at(block) * static_cast<float>(group.scale);
  const float minimum = half_at(block + 2) * static_cast<float>(group.minimum);
  const float scaled = scale * static_cast<float>(q4_k_code(block, place));
  return scaled - minimum;
}

inline int q6_k_code(const std::uint8_t* block, std::int64_t place) {
  const std::int64_t half = place / 128;
  const std::int64_t in_half = place % 128;
  const int low = block[half * 64 + in_half % 64] >> (in_half < 64 ? 0 : 4) & 15;
  const int high = block[128 + half * 32 + in_half % 32] >> (in_half / 32 * 2) & 3;
  return (low | high << 4) - 32;
}

inline float q6_k_element(const std::uint8_t* block, std::int64_t place) {
  const auto scale = static_cast<std::int8_t>(block[192 + place / 16]);
  const float product = half_at(block + 208) * static_cast<float>(scale);
  return product * static_cast<float>(q6_k_code(block, place));
}

inline int u4_g32_code(const std::uint8_t* block, std::int64_t place) {
  const int pair = block[3 + place % 16];
  return (place < 16 ? pair & 15 : pair >> 4) - block[2];
}

inline float u4_g32_element(const std::uint8_t* block, std::int64_t place) {
  return half_at(block) * static_cast<float>(u4_g32_code(block, place));
}

inline float float_at(const std::uint8_t* bytes) {
  float value = 0.0F;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline float u8_g128_element(const std::uint8_t* block, std::int64_t place) {
  return float_at(block) * static_cast<float>(block[5 + place] - block[4]);
}

inline int u4_g128_code(const std::uint8_t* block, std::int64_t place) {
  const int pair = block[5 + 2 * (place % 32) + place / 64];
  return (place / 32 % 2 == 0 ? pair & 15 : pair >> 4) - block[4];
}

inline float u4_g128_element(const std::uint8_t* block, std::int64_t place) {
  return float_at(block) * static_cast<float>(u4_g128_code(block, place));
}

// 32 elements of a row of blocks, from element 32 * line on, as products with quantized inputs take
// them (MatmulParams): element = scale * code - minimum. Codes are less their zero points; those of
// kQ6K are times the scale of their 16 elements.
struct BlockLine {
  std::array<int, 32> codes;
  float scale;
  float minimum;
};
inline BlockLine block_line(DType dtype, const void* row, std::int64_t line) {
  const ElementBlock shape = block_of(dtype);
  const auto* block =
      static_cast<const std::uint8_t*>(row) + 32 * line / shape.elements * shape.bytes;
  const std::int64_t begin = 32 * line % shape.elements;
  BlockLine result{};
  const auto code_of = [&](std::int64_t place) -> int {
    switch (dtype) {
      case DType::kQ8_0: return static_cast<std::int8_t>(block[2 + place]);
      case DType::kQ4K: return q4_k_code(block, place);
      case DType::kQ6K:
        return q6_k_code(block, place) * static_cast<std::int8_t>(block[192 + place / 16]);
      case DType::kU4G32: return u4_g32_code(block, place);
      case DType::kU4G128: return u4_g128_code(block, place);
      case DType::kU8G128: return block[5 + place] - block[4];
      default: return int4_code(block, place);
    }
  };
  for (std::int64_t i = 0; i < 32; ++i) {
    result.codes[static_cast<std::size_t>(i)] = code_of(begin + i);
  }
  if (dtype == DType::kU4G128 || dtype == DType::kU8G128) {
    result.scale = float_at(block);
  } else {
    result.scale = half_at(dtype == DType::kQ6K ? block + 208 : block);
  }
  if (dtype == DType::kQ4K) {
    const Q4KGroup group = q4_k_group(block + 4, begin / 32);
    result.scale *= static_cast<float>(group.scale);
    result.minimum = half_at(block + 2) * static_cast<float>(group.minimum);
  }
  return result;
}

// Element `index` of a row of blocks, before it is rounded to BF16. REQUIRES: is_blocks(dtype).
inline float block_element(DType dtype, const void* row, std::int64_t index) {
  const ElementBlock shape = block_of(dtype);
  const auto* block = static_cast<const std::uint8_t*>(row) + index / shape.elements * shape.bytes;
  const std::int64_t place = index % shape.elements;
  switch (dtype) {
    case DType::kQ8_0: return q8_0_element(block, place);
    case DType::kQ4K: return q4_k_element(block, place);
    case DType::kQ6K: return q6_k_element(block, place);
    case DType::kU4G32: return u4_g32_element(block, place);
    case DType::kU4G128: return u4_g128_element(block, place);
    case DType::kU8G128: return u8_g128_element(block, place);
    default: return int4_element(block, place);
  }
}

}  // namespace sluice
