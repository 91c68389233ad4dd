#include "model/packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "model/weight_conversion.h"
#include "tensor/half.h"

namespace sluice {
namespace {

constexpr std::int64_t kTileRows = kRepackedRows;
constexpr std::int64_t kTileCols = 128;
// The codes of some rows and columns, each in a byte.
using CodeTile = std::array<std::array<std::uint8_t, kTileCols>, kTileRows>;

constexpr std::array<int, 8> kAwqRows = {0, 2, 4, 6, 1, 3, 5, 7};    // by place in a word
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};  // by row

std::uint32_t word_at(std::span<const std::byte> bytes, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + static_cast<std::size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

int byte_at(std::span<const std::byte> bytes, std::int64_t index) {
  return static_cast<std::int8_t>(bytes[static_cast<std::size_t>(index)]);
}

int code_of(std::uint32_t word, std::int64_t place, std::int32_t bits) {
  return static_cast<int>(word >> (place * bits) & ((1U << bits) - 1U));
}

// The codes of a word as bytes, the first one lowest.
std::uint64_t spread(std::uint32_t word, std::int32_t bits) {
  if (bits == 8) return word;
  std::uint64_t x = word;
  x = (x | x << 16) & 0x0000FFFF0000FFFFU;
  x = (x | x << 8) & 0x00FF00FF00FF00FFU;
  return (x | x << 4) & 0x0F0F0F0F0F0F0F0FU;
}

void put_codes(std::uint8_t* to, std::uint64_t codes, std::int64_t count) {
  std::memcpy(to, &codes, static_cast<std::size_t>(count));
}

struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Fill the tile with rows and columns of the matrix. Columns begin at a multiple of kTileCols.
void load_gptq(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile) {
  const std::int64_t per_word = m.codes_of_word();
  for (std::int64_t k = 0; k < cols.count; k += per_word) {
    const std::int64_t words = (cols.first + k) / per_word * m.rows + rows.first;
    for (std::int64_t row = 0; row < rows.count; ++row) {
      put_codes(&tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(k)],
                spread(word_at(m.codes, words + row), m.form.bits), per_word);
    }
  }
}

void load_awq(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile) {
  for (std::int64_t k = 0; k < cols.count; ++k) {
    const std::int64_t words = (cols.first + k) * (m.rows / 8) + rows.first / 8;
    for (std::int64_t eight = 0; eight < rows.count / 8; ++eight) {
      const std::uint32_t word = word_at(m.codes, words + eight);
      for (std::size_t place = 0; place < 8; ++place) {
        const auto row = static_cast<std::size_t>(8 * eight + kAwqRows[place]);
        tile[row][static_cast<std::size_t>(k)] =
            static_cast<std::uint8_t>(word >> (4 * place) & 15U);
      }
    }
  }
}

void load_compressed(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile) {
  const std::int64_t per_word = m.codes_of_word();
  const std::int64_t words_of_row = (m.cols + per_word - 1) / per_word;
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::int64_t words = (rows.first + row) * words_of_row + cols.first / per_word;
    for (std::int64_t k = 0; k < cols.count; k += per_word) {
      put_codes(&tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(k)],
                spread(word_at(m.codes, words + k / per_word), m.form.bits),
                std::min(per_word, cols.count - k));
    }
  }
}

void load_bytes(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile) {
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::int64_t first = (rows.first + row) * m.cols + cols.first;
    for (std::int64_t k = 0; k < cols.count; ++k) {
      tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(k)] =
          static_cast<std::uint8_t>(byte_at(m.codes, first + k) + 128);
    }
  }
}

// Columns in m.order. `code`: (row, column)
template <class Code>
void load_ordered(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile, const Code& code) {
  for (std::int64_t k = 0; k < cols.count; ++k) {
    const std::int64_t col = m.order[static_cast<std::size_t>(cols.first + k)];
    for (std::int64_t row = 0; row < rows.count; ++row) {
      tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(k)] =
          static_cast<std::uint8_t>(code(rows.first + row, col));
    }
  }
}

void load_ordered(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile) {
  const std::int64_t per_word = m.codes_of_word();
  const std::int32_t bits = m.form.bits;
  switch (m.form.packing) {
    case Packing::kGptq:
    case Packing::kGptqV2:
      return load_ordered(m, rows, cols, tile, [&](std::int64_t row, std::int64_t col) {
        return code_of(word_at(m.codes, col / per_word * m.rows + row), col % per_word, bits);
      });
    case Packing::kCompressed: {
      const std::int64_t words_of_row = (m.cols + per_word - 1) / per_word;
      return load_ordered(m, rows, cols, tile, [&](std::int64_t row, std::int64_t col) {
        return code_of(word_at(m.codes, row * words_of_row + col / per_word), col % per_word, bits);
      });
    }
    case Packing::kPlainInt8:
      return load_ordered(m, rows, cols, tile, [&](std::int64_t row, std::int64_t col) {
        return byte_at(m.codes, row * m.cols + col) + 128;
      });
    case Packing::kAwq: CHECK(false);  // has no order
  }
}

void load_tile(const PackedMatrix& m, Range rows, Range cols, CodeTile& tile) {
  if (!m.order.empty()) return load_ordered(m, rows, cols, tile);
  switch (m.form.packing) {
    case Packing::kGptq:
    case Packing::kGptqV2: return load_gptq(m, rows, cols, tile);
    case Packing::kAwq: return load_awq(m, rows, cols, tile);
    case Packing::kCompressed: return load_compressed(m, rows, cols, tile);
    case Packing::kPlainInt8: return load_bytes(m, rows, cols, tile);
  }
}

// The low halves of 16 bytes are the codes 0 to 15, the high halves the codes 16 to 31.
void put_nibbles(const std::uint8_t* codes, std::byte* to) {
  for (std::size_t i = 0; i < 16; ++i) to[i] = std::byte(codes[i] | codes[16 + i] << 4);
}

void put_f16(float scale, std::byte* to) {
  const std::uint16_t bits = float_to_f16(scale);
  std::memcpy(to, &bits, sizeof(bits));
}

// Writes one block.
void put_block(DType type, float scale, int zero, const std::uint8_t* codes, std::byte* to) {
  switch (type) {
    case DType::kI4: put_f16(scale, to); return put_nibbles(codes, to + 2);
    case DType::kU4G32:
      put_f16(scale, to);
      to[2] = std::byte(zero);
      return put_nibbles(codes, to + 3);
    case DType::kU4G128: {
      std::memcpy(to, &scale, sizeof(scale));
      to[4] = std::byte(zero);
      std::array<std::uint16_t, 32> words;
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = static_cast<std::uint16_t>(codes[i] | codes[32 + i] << 4 | codes[64 + i] << 8 |
                                              codes[96 + i] << 12);
      }
      std::memcpy(to + 5, words.data(), sizeof(words));
      return;
    }
    case DType::kU8G128:
      std::memcpy(to, &scale, sizeof(scale));
      to[4] = std::byte(zero);
      std::memcpy(to + 5, codes, 128);
      return;
    default:
      CHECK(type == DType::kQ8_0);
      put_f16(scale, to);
      for (std::size_t i = 0; i < 32; ++i) to[2 + i] = std::byte(codes[i] ^ 0x80);
  }
}

bool is_exact_in_f16(float value) { return f16_to_float(float_to_f16(value)) == value; }

// Properties of all scales and zero points of a matrix.
struct Findings {
  bool centered = true;           // every zero point is half of the range
  std::optional<int> not_a_code;  // a zero point
  std::optional<float> not_finite;
  std::optional<float> not_f16;
};

Findings look_at(const PackedMatrix& m) {
  Findings found;
  const int half = 1 << (m.form.bits - 1);
  for (std::int64_t row = 0; row < m.rows; ++row) {
    for (std::int64_t group = 0; group < m.groups(); ++group) {
      const float scale = m.scale(row, group);
      if (!std::isfinite(scale)) found.not_finite = scale;
      if (!is_exact_in_f16(scale)) found.not_f16 = scale;
      if (m.zeros.empty()) continue;
      const int zero = m.zero(row, group);
      if (zero != half) found.centered = false;
      if (zero < 0 || zero >= 2 * half) found.not_a_code = zero;
    }
  }
  return found;
}

}  // namespace

float PackedMatrix::scale(std::int64_t row, std::int64_t group) const {
  const bool by_row = form.packing == Packing::kCompressed || form.packing == Packing::kPlainInt8;
  const std::int64_t index = by_row ? row * groups() + group : group * rows + row;
  float value = 0.0F;
  convert_weights(scales.data() + static_cast<std::size_t>(index) * size_of(scale_dtype),
                  scale_dtype, reinterpret_cast<std::byte*>(&value), DType::kF32, 1);
  return value;
}

int PackedMatrix::zero(std::int64_t row, std::int64_t group) const {
  const int half = 1 << (form.bits - 1);
  if (zeros.empty()) return half;
  if (zeros_are_bytes) return byte_at(zeros, row * groups() + group) + half;
  const std::int64_t per_word = codes_of_word();
  const std::int64_t words_of_rows = (rows + per_word - 1) / per_word;
  if (form.packing == Packing::kCompressed) {
    return code_of(word_at(zeros, row / per_word * groups() + group), row % per_word, form.bits);
  }
  std::uint32_t word = word_at(zeros, group * words_of_rows + row / per_word);
  if (form.packing == Packing::kGptq) word += form.bits == 4 ? 0x11111111U : 0x01010101U;
  const std::int64_t place = form.packing == Packing::kAwq
                                 ? kAwqPlaces[static_cast<std::size_t>(row % 8)]
                                 : row % per_word;
  return code_of(word, place, form.bits);
}

Result<DType> block_type(const PackedMatrix& matrix) {
  const Findings found = look_at(matrix);
  if (found.not_finite) {
    return invalid_argument(
        fmt::format("a scale is {}; expected a finite number", *found.not_finite));
  }
  if (found.not_a_code) {
    const int codes = 1 << matrix.form.bits;
    return invalid_argument(fmt::format("a zero point is {}; expected {} to {}",
                                        *found.not_a_code - codes / 2, -codes / 2, codes / 2 - 1));
  }
  const std::int64_t group = matrix.group();
  const bool whole = matrix.groups() == 1;
  if (whole || group % 128 == 0) {
    return matrix.form.bits == 4 ? DType::kU4G128 : DType::kU8G128;
  }
  if (group % 32 != 0) {
    return unsupported(fmt::format(
        "groups of {} columns are not supported; expected a multiple of 32, or whole rows", group));
  }
  if (found.not_f16) {
    return unsupported(fmt::format(
        "a scale is {}, which F16 does not hold exactly; that is supported in groups of "
        "128 columns and in whole rows only",
        *found.not_f16));
  }
  if (matrix.form.bits == 4) return found.centered ? DType::kI4 : DType::kU4G32;
  if (found.centered) return DType::kQ8_0;
  return unsupported(
      "zero points other than 128 are supported with 8 bits in groups of 128 columns and in whole "
      "rows only");
}

void repack_rows(const PackedMatrix& matrix, DType type, std::int64_t begin, std::int64_t end,
                 std::byte* target) {
  const ElementBlock block = block_of(type);
  const std::int64_t row_bytes = bytes_of(type, matrix.cols);
  const std::int64_t group = matrix.group();
  CodeTile tile{};
  for (std::int64_t row = begin; row < end; row += kTileRows) {
    const Range rows{row, std::min(kTileRows, end - row)};
    for (std::int64_t col = 0; col < matrix.cols; col += kTileCols) {
      const Range cols{col, std::min(kTileCols, matrix.cols - col)};
      if (cols.count < kTileCols) tile = {};  // what lies behind the last column
      load_tile(matrix, rows, cols, tile);
      for (std::int64_t r = 0; r < rows.count; ++r) {
        std::byte* const to = target + (row - begin + r) * row_bytes;
        for (std::int64_t k = 0; k < cols.count; k += block.elements) {
          const std::int64_t g = (col + k) / group;
          put_block(type, matrix.scale(row + r, g), matrix.zero(row + r, g),
                    &tile[static_cast<std::size_t>(r)][static_cast<std::size_t>(k)],
                    to + (col + k) / block.elements * block.bytes);
        }
      }
    }
  }
}

}  // namespace sluice
