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

// Four bits, in the order of kI4.
inline int nibble_at(const std::uint8_t* bytes, std::int64_t place) {
  const int pair = bytes[place % 16];
  return place < 16 ? pair & 15 : pair >> 4;
}
inline int bit_at(const std::uint8_t* bytes, std::int64_t place) {
  return bytes[place / 8] >> (place % 8) & 1;
}

inline int q5_0_code(const std::uint8_t* block, std::int64_t place) {
  return (nibble_at(block + 6, place) | bit_at(block + 2, place) << 4) - 16;
}

inline int q5_1_code(const std::uint8_t* block, std::int64_t place) {
  return nibble_at(block + 8, place) | bit_at(block + 4, place) << 4;
}

// Two bits of a kQ2K block, and the low ones of a kQ3K block.
inline int two_bits(const std::uint8_t* codes, std::int64_t place) {
  return codes[place / 128 * 32 + place % 32] >> (place / 32 % 4 * 2) & 3;
}

// The 6-bit scale of 16 elements of a kQ3K block. Eight bytes hold the low halves, four the upper
// two bits.
inline int q3_k_scale(const std::uint8_t* block, std::int64_t run) {
  const std::uint8_t* const packed = block + 96;
  const int low = packed[run % 8] >> (run / 8 * 4) & 15;
  const int high = packed[8 + run % 4] >> (run / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

inline int q3_k_code(const std::uint8_t* block, std::int64_t place) {
  return (two_bits(block + 32, place) | (block[place % 32] >> (place / 32) & 1) << 2) - 4;
}

// The 6-bit scale and minimum of one of the 8 groups of a kQ4K or kQ5K block. The 12 bytes hold
// the low 6 bits of the first four scales, then of the first four minima; the upper bits of these
// bytes and the last four bytes hold those of the other groups.
struct Q4KGroup {
  int scale;
  int minimum;
};
inline Q4KGroup q4_k_group(const std::uint8_t* packed, std::int64_t group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4),
          (packed[group + 4] >> 4) | (packed[group] >> 6 << 4)};
}

// The codes of kQ4K, and the low halves of those of kQ5K.
inline int q4_k_code(const std::uint8_t* codes, std::int64_t place) {
  const int pair = codes[place / 64 * 32 + place % 32];
  return place % 64 < 32 ? pair & 15 : pair >> 4;
}

inline int q5_k_code(const std::uint8_t* block, std::int64_t place) {
  const int high = block[16 + place % 32] >> (place / 32) & 1;
  return q4_k_code(block + 48, place) | high << 4;
}

inline int q6_k_code(const std::uint8_t* block, std::int64_t place) {
  const std::int64_t half = place / 128;
  const std::int64_t in_half = place % 128;
  const int low = block[half * 64 + in_half % 64] >> (in_half < 64 ? 0 : 4) & 15;
  const int high = block[128 + half * 32 + in_half % 32] >> (in_half / 32 * 2) & 3;
  return (low | high << 4) - 32;
}

// The values that codes of kIq4Nl and kIq4Xs name; the format defines them.
inline constexpr std::array<std::int8_t, 16> kIq4Values = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline int iq4_xs_scale(const std::uint8_t* block, std::int64_t group) {
  const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
  const int high = block[2 + group / 4] >> (group % 4 * 2) & 3;
  return (low | high << 4) - 32;
}

inline int u4_g32_code(const std::uint8_t* block, std::int64_t place) {
  return nibble_at(block + 3, place) - block[2];
}

inline float float_at(const std::uint8_t* bytes) {
  float value = 0.0F;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline int u4_g128_code(const std::uint8_t* block, std::int64_t place) {
  const int pair = block[5 + 2 * (place % 32) + place / 64];
  return (place / 32 % 2 == 0 ? pair & 15 : pair >> 4) - block[4];
}

// The code of an element of a block, less its zero point.
inline int block_code(DType dtype, const std::uint8_t* block, std::int64_t place) {
  switch (dtype) {
    case DType::kQ4_1: return nibble_at(block + 4, place);
    case DType::kQ5_0: return q5_0_code(block, place);
    case DType::kQ5_1: return q5_1_code(block, place);
    case DType::kQ8_0: return static_cast<std::int8_t>(block[2 + place]);
    case DType::kQ2K: return two_bits(block + 16, place);
    case DType::kQ3K: return q3_k_code(block, place);
    case DType::kQ4K: return q4_k_code(block + 16, place);
    case DType::kQ5K: return q5_k_code(block, place);
    case DType::kQ6K: return q6_k_code(block, place);
    case DType::kIq4Nl: return kIq4Values[static_cast<std::size_t>(nibble_at(block + 2, place))];
    case DType::kIq4Xs: {
      const int code = nibble_at(block + 8 + place / 32 * 16, place % 32);
      return kIq4Values[static_cast<std::size_t>(code)];
    }
    case DType::kU4G32: return u4_g32_code(block, place);
    case DType::kU4G128: return u4_g128_code(block, place);
    case DType::kU8G128: return block[5 + place] - block[4];
    default: return int4_code(block, place);
  }
}

// The code of an element is multiplied by `factor`, which serves at least 32 elements, and by
// `run`, a whole number that serves 16. Then `minimum` is subtracted, times such a number. The
// products of both are exact in F32.
struct BlockScale {
  float factor = 0.0F;
  int run = 1;
  float minimum = 0.0F;
  int minimum_run = 1;
};
inline BlockScale block_scale(DType dtype, const std::uint8_t* block, std::int64_t place) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1: return {half_at(block), 1, -half_at(block + 2)};
    case DType::kQ2K: {
      const int run = block[place / 16];
      return {half_at(block + 80), run & 15, half_at(block + 82), run >> 4};
    }
    case DType::kQ3K: return {half_at(block + 108), q3_k_scale(block, place / 16), 0.0F};
    case DType::kQ4K:
    case DType::kQ5K: {
      const Q4KGroup group = q4_k_group(block + 4, place / 32);
      return {half_at(block) * static_cast<float>(group.scale), 1,
              half_at(block + 2) * static_cast<float>(group.minimum)};
    }
    case DType::kQ6K:
      return {half_at(block + 208), static_cast<std::int8_t>(block[192 + place / 16]), 0.0F};
    case DType::kIq4Xs: {
      const auto scale = static_cast<float>(iq4_xs_scale(block, place / 32));
      return {half_at(block) * scale, 1, 0.0F};
    }
    case DType::kU4G128:
    case DType::kU8G128: return {float_at(block), 1, 0.0F};
    default: return {half_at(block), 1, 0.0F};
  }
}

// 32 elements of a row of blocks, from element 32 * line on, as products with quantized inputs take
// them (MatmulParams): element = scale * code - minimum * minimum_run. Codes are less their zero
// points, and times BlockScale::run.
struct BlockLine {
  std::array<int, 32> codes;
  float scale;
  float minimum;
  std::array<int, 2> minimum_runs;  // of 16 elements each
};
inline BlockLine block_line(DType dtype, const void* row, std::int64_t line) {
  const ElementBlock shape = block_of(dtype);
  const auto* block =
      static_cast<const std::uint8_t*>(row) + 32 * line / shape.elements * shape.bytes;
  const std::int64_t begin = 32 * line % shape.elements;
  BlockLine result{};
  BlockScale scale;
  for (std::int64_t i = 0; i < 32; ++i) {
    if (i % 16 == 0) {
      scale = block_scale(dtype, block, begin + i);
      result.minimum_runs[static_cast<std::size_t>(i / 16)] = scale.minimum_run;
    }
    result.codes[static_cast<std::size_t>(i)] = block_code(dtype, block, begin + i) * scale.run;
  }
  result.scale = scale.factor;
  result.minimum = scale.minimum;
  return result;
}

// Element `index` of a row of blocks, before it is rounded to BF16. REQUIRES: is_blocks(dtype).
inline float block_element(DType dtype, const void* row, std::int64_t index) {
  const ElementBlock shape = block_of(dtype);
  const auto* block = static_cast<const std::uint8_t*>(row) + index / shape.elements * shape.bytes;
  const std::int64_t place = index % shape.elements;
  const BlockScale scale = block_scale(dtype, block, place);
  const float scaled = scale.factor * static_cast<float>(scale.run) *
                       static_cast<float>(block_code(dtype, block, place));
  if (!has_minimum(dtype)) return scaled;
  return scaled - scale.minimum * static_cast<float>(scale.minimum_run);
}

}  // namespace sluice
