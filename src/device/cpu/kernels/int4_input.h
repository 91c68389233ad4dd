// Inputs of products with weights in INT4 (MatmulParams): each 32 elements of a row of x get codes
// from -127 to 127 and a scale. Rows are packed in tiles of kPackedTile, or in one of fewer rows if
// there are no more; so are the codes of a block: four along K of each row, then the next four.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "tensor/dtype.h"

namespace sluice::kernels {

// Elements of a block, and groups of four along K.
inline constexpr std::int64_t kInt4Depth = block_of(DType::kI4).elements;
inline constexpr int kInt4Quads = static_cast<int>(kInt4Depth / 4);

// Where the packed rows of a piece lie.
class Int4Input {
 public:
  SLUICE_INLINE Int4Input(const void* packed, std::int64_t depth, std::int32_t rows)
      : first_(static_cast<const std::uint8_t*>(packed)),
        width_(rows < kPackedTile ? rows : kPackedTile),
        blocks_((depth + kInt4Depth - 1) / kInt4Depth) {}

  // Rows of a tile: the distance between the groups of one row, in groups.
  SLUICE_INLINE std::int64_t width() const { return width_; }
  SLUICE_INLINE std::int64_t blocks() const { return blocks_; }
  SLUICE_INLINE std::int64_t block_bytes() const { return width_ * kInt4RowBytes; }
  SLUICE_INLINE const std::uint8_t* block(std::int64_t tile, std::int64_t block) const {
    return first_ + (tile * blocks_ + block) * block_bytes();
  }
  // A block holds the rows' scales, -8 times the sums of their codes, and [kInt4Quads][width][4]
  // codes.
  SLUICE_INLINE static const float* scales(const std::uint8_t* block) {
    return reinterpret_cast<const float*>(block);
  }
  SLUICE_INLINE const std::int32_t* starts(const std::uint8_t* block) const {
    return reinterpret_cast<const std::int32_t*>(block) + width_;
  }
  SLUICE_INLINE const std::int32_t* quads(const std::uint8_t* block) const {
    return reinterpret_cast<const std::int32_t*>(block) + 2 * width_;
  }

 private:
  const std::uint8_t* first_;
  std::int64_t width_;
  std::int64_t blocks_;
};

struct QuantizedBlock {
  float scale = 0.0F;
  std::int32_t start = 0;
  alignas(32) std::int32_t quads[kInt4Quads] = {};
};

// The first n of 32 elements in BF16; the others are zeros.
template <class S>
SLUICE_INLINE QuantizedBlock quantize_block(const std::uint16_t* x, std::int64_t n) {
  alignas(64) std::uint16_t copy[kInt4Depth];
  if (n < kInt4Depth) {
    for (std::int64_t i = 0; i < kInt4Depth; ++i) copy[i] = i < n ? x[i] : std::uint16_t{0};
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
  QuantizedBlock block;
  if (bits >= 0x7F80U) {
    block.scale = std::numeric_limits<float>::quiet_NaN();
    return block;
  }
  const float largest =
      _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits << 16))));
  if (largest < MatmulParams::kSmallestInput) return block;
  const __m256 factor = _mm256_set1_ps(127.0F / largest);
  __m256i codes[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(octet(i)), 16);
    codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(wide), factor));
  }
  const __m256i sums =
      _mm256_add_epi32(_mm256_add_epi32(codes[0], codes[1]), _mm256_add_epi32(codes[2], codes[3]));
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                            _mm256_packs_epi32(codes[2], codes[3]));
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(block.quads),
      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  block.scale = largest / 127.0F;
  block.start = -8 * _mm_cvtsi128_si32(sum);
  return block;
}

// Packs blocks [begin, end) of x, which has `rows` rows in BF16; blocks are counted along K of each
// tile, then over tiles.
template <class S>
void pack_int4(const TensorView& x, std::int32_t rows, std::int64_t begin, std::int64_t end,
               std::uint8_t* packed) {
  const Int4Input input(packed, x.dims[1], rows);
  const std::int64_t width = input.width();
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t first_row = i / input.blocks() * kPackedTile;
    const std::int64_t k = i % input.blocks() * kInt4Depth;
    const std::int64_t left = x.dims[1] - k;
    std::uint8_t* const to = packed + i * input.block_bytes();
    for (std::int64_t r = 0; r < width; ++r) {
      QuantizedBlock block;
      if (first_row + r < rows) {
        const auto* const row =
            static_cast<const std::uint16_t*>(x.data) + (first_row + r) * x.strides[0];
        block = quantize_block<S>(row + k, left < kInt4Depth ? left : kInt4Depth);
      }
      reinterpret_cast<float*>(to)[r] = block.scale;
      auto* const numbers = reinterpret_cast<std::int32_t*>(to) + width + r;
      numbers[0] = block.start;
#pragma GCC unroll 8
      for (int q = 0; q < kInt4Quads; ++q) numbers[(q + 1) * width] = block.quads[q];
    }
  }
}

}  // namespace sluice::kernels
