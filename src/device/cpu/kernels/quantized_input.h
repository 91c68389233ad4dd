// Inputs of products with weights in blocks (MatmulParams): each 32 elements of a row of x, a line,
// get codes from -127 to 127 and a scale. Rows are packed in tiles of as many as a register tile
// takes; the last tile may be narrower. A tile lies line by line along K, and a line holds for all
// of its rows: the scales, the scales times the sums of the codes, minus these sums, minus 32 times
// those of the first and of the second 16 codes, and the codes, row by row. Included by
// kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"

namespace sluice::kernels {

// Groups of four codes along K.
inline constexpr int kLineQuads = static_cast<int>(kLineElements / 4);
inline constexpr int kLineNumbers = 5;  // before the codes
static_assert(kLineRowBytes == 4 * (kLineNumbers + kLineQuads));

// Where the codes of a line begin.
SLUICE_INLINE constexpr std::int64_t line_codes(int width) { return 4 * kLineNumbers * width; }

// One row of a line. width: the rows of the tile.
template <int width>
class InputLine {
 public:
  SLUICE_INLINE InputLine(const std::uint8_t* line, int row)
      : numbers_(reinterpret_cast<const std::int32_t*>(line) + row),
        quads_(reinterpret_cast<const std::int32_t*>(line + line_codes(width)) + kLineQuads * row) {
  }
  SLUICE_INLINE float scale() const { return reinterpret_cast<const float*>(numbers_)[0]; }
  SLUICE_INLINE float scaled_sum() const { return reinterpret_cast<const float*>(numbers_)[width]; }
  SLUICE_INLINE std::int32_t minus_sum() const { return numbers_[2 * width]; }
  SLUICE_INLINE std::int32_t first_offset() const { return numbers_[3 * width]; }
  SLUICE_INLINE std::int32_t second_offset() const { return numbers_[4 * width]; }
  // Four codes each.
  SLUICE_INLINE const std::int32_t& quad(int i) const { return quads_[i]; }

 private:
  const std::int32_t* numbers_;
  const std::int32_t* quads_;
};

// Rows of a tile that holds `rows` rows, some of which may be zeros: kernels are compiled for these
// numbers.
SLUICE_INLINE constexpr int tile_width(std::int64_t rows) {
  if (rows <= 4) return static_cast<int>(rows);
  return rows <= 6 ? 6 : rows <= 8 ? 8 : rows <= 12 ? 12 : 16;
}

// Where the packed rows of a piece lie. `most`: rows of a tile but the last.
template <int most>
class QuantizedInput {
 public:
  SLUICE_INLINE QuantizedInput(const void* packed, std::int64_t depth, std::int64_t rows)
      : first_(static_cast<const std::uint8_t*>(packed)),
        rows_(rows),
        lines_((depth + kLineElements - 1) / kLineElements) {}

  SLUICE_INLINE std::int64_t lines() const { return lines_; }
  SLUICE_INLINE int width(std::int64_t tile) const {
    const std::int64_t left = rows_ - tile * most;
    return left >= most ? most : tile_width(left);
  }
  SLUICE_INLINE std::int64_t offset(std::int64_t tile, std::int64_t line) const {
    return (tile * most * lines_ + line * width(tile)) * kLineRowBytes;
  }
  // A tile, from one of its lines on.
  SLUICE_INLINE const std::uint8_t* tile(std::int64_t tile, std::int64_t line = 0) const {
    return first_ + offset(tile, line);
  }

 private:
  const std::uint8_t* first_;
  std::int64_t rows_;
  std::int64_t lines_;
};

struct QuantizedLine {
  float scale = 0.0F;
  std::int32_t first_sum = 0;
  std::int32_t second_sum = 0;
  alignas(32) std::int32_t quads[kLineQuads] = {};
};

SLUICE_INLINE static std::int32_t sum_of(__m256i numbers) {
  __m128i sum =
      _mm_add_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

// The first n of 32 elements in BF16; the others are zeros.
template <class S>
SLUICE_INLINE QuantizedLine quantize_line(const std::uint16_t* x, std::int64_t n) {
  alignas(64) std::uint16_t copy[kLineElements];
  if (n < kLineElements) {
    for (std::int64_t i = 0; i < kLineElements; ++i) copy[i] = i < n ? x[i] : std::uint16_t{0};
    x = copy;
  }
  const auto octet = [x](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + 8 * i));
  };
  // Magnitudes are in the order of their bits, and those of infinity and NaN are the largest.
  const __m128i magnitude = _mm_set1_epi16(0x7FFF);
  __m128i most = _mm_and_si128(octet(0), magnitude);
  for (int i = 1; i < 4; ++i) most = _mm_max_epu16(most, _mm_and_si128(octet(i), magnitude));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi16(-1)));
  const auto bits = static_cast<std::uint32_t>(_mm_extract_epi16(least, 0)) ^ 0xFFFFU;
  QuantizedLine line;
  if (bits >= 0x7F80U) {
    line.scale = std::numeric_limits<float>::quiet_NaN();
    return line;
  }
  const float largest =
      _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits << 16))));
  if (largest < MatmulParams::kSmallestInput) return line;
  const __m256 factor = _mm256_set1_ps(127.0F / largest);
  __m256i codes[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(octet(i)), 16);
    codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(wide), factor));
  }
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                            _mm256_packs_epi32(codes[2], codes[3]));
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(line.quads),
      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  line.scale = largest / 127.0F;
  line.first_sum = sum_of(_mm256_add_epi32(codes[0], codes[1]));
  line.second_sum = sum_of(_mm256_add_epi32(codes[2], codes[3]));
  return line;
}

// Packs lines [begin, end) of x, which has `rows` rows in BF16; lines are counted along K of each
// tile, then over tiles of `most` rows.
template <class S, int most>
void pack_lines(const TensorView& x, std::int32_t rows, std::int64_t begin, std::int64_t end,
                std::uint8_t* packed) {
  const QuantizedInput<most> input(packed, x.dims[1], rows);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t tile = i / input.lines();
    const std::int64_t k = i % input.lines() * kLineElements;
    const std::int64_t left = x.dims[1] - k;
    const int width = input.width(tile);
    std::uint8_t* const to = packed + input.offset(tile, i % input.lines());
    for (int r = 0; r < width; ++r) {
      QuantizedLine line;
      if (tile * most + r < rows) {
        const auto* const row =
            static_cast<const std::uint16_t*>(x.data) + (tile * most + r) * x.strides[0];
        line = quantize_line<S>(row + k, left < kLineElements ? left : kLineElements);
      }
      const std::int32_t sum = line.first_sum + line.second_sum;
      auto* const scales = reinterpret_cast<float*>(to) + r;
      scales[0] = line.scale;
      scales[width] = line.scale * static_cast<float>(sum);
      auto* const numbers = reinterpret_cast<std::int32_t*>(to) + r;
      numbers[2 * width] = -sum;
      numbers[3 * width] = -32 * line.first_sum;
      numbers[4 * width] = -32 * line.second_sum;
      __builtin_memcpy(to + line_codes(width) + r * kLineElements, line.quads, kLineElements);
    }
  }
}

}  // namespace sluice::kernels
