#include "model/quantized_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "model/weight_conversion.h"
#include "tensor/float8.h"
#include "tensor/gguf_blocks.h"

namespace sluice {
namespace {

std::vector<std::byte> stored_as(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  convert_weights(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, bytes.data(),
                  dtype, values.size());
  return bytes;
}

std::vector<float> random_matrix(std::int64_t rows, std::int64_t cols) {
  SplitMix64 rng(1);
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5);
  return values;
}

// Whatever the cut, in each dtype: every element is within half a step of its code, and the largest
// of a block gets the largest code.
TEST(QuantizedWeights, QuantizesBlockByBlock) {
  constexpr std::int64_t kRows = 150;
  constexpr std::int64_t kCols = 1300;
  const std::vector<float> values = random_matrix(kRows, kCols);
  ThreadPool pool(2);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto bytes = stored_as(dtype, values);
    const QuantizedBlocks blocks{kRows, kCols, 128, 128};
    ASSERT_EQ(blocks.count(), 2U * 11U);
    const auto scales = choose_scales(bytes.data(), dtype, blocks, pool);
    ASSERT_TRUE(scales);
    std::vector<std::byte> codes(values.size());
    const std::size_t cut = 70'001;
    quantize(bytes.data(), dtype, blocks, *scales, 0, cut, codes.data());
    quantize(bytes.data(), dtype, blocks, *scales, cut, codes.size() - cut, codes.data() + cut);
    EXPECT_FALSE(has_nan(codes));
    std::vector<float> back(values.size());
    expand(codes.data(), blocks, *scales, 0, cut, reinterpret_cast<std::byte*>(back.data()),
           DType::kF32);
    expand(codes.data(), blocks, *scales, cut, codes.size() - cut,
           reinterpret_cast<std::byte*>(back.data() + cut), DType::kF32);
    std::vector<int> largest(blocks.count());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t block = i / kCols / 128 * 11 + i % kCols / 128;
      const double scale = (*scales)[block];
      // Half of a step of 2^-3, or of the smallest step of all.
      const double step = std::max(std::abs(values[i]) * 0x1p-4, scale * 0x1p-10);
      ASSERT_NEAR(back[i], values[i], step * 1.07) << i;
      largest[block] += (codes[i] & std::byte{0x7F}) == std::byte{0x7E} ? 1 : 0;
    }
    for (const int count : largest) EXPECT_GE(count, 1);
  }
}

TEST(QuantizedWeights, Int8HasAScaleForEachRow) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kCols = 300;
  std::vector<float> values = random_matrix(kRows, kCols);
  for (std::size_t i = 0; i < kCols; ++i) values[kCols + i] *= 1e-4F;
  std::fill_n(values.begin() + 2 * kCols, kCols, 0.0F);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const QuantizedBlocks blocks = QuantizedBlocks::own(DType::kI8, kRows, kCols);
  ThreadPool pool(1);
  const auto scales = choose_scales(bytes, DType::kF32, blocks, pool);
  ASSERT_TRUE(scales);
  ASSERT_EQ(scales->size(), 5U);
  std::vector<std::byte> codes(values.size());
  quantize(bytes, DType::kF32, blocks, *scales, 0, 700, codes.data());
  quantize(bytes, DType::kF32, blocks, *scales, 700, codes.size() - 700, codes.data() + 700);
  std::vector<int> largest(kRows);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int code = static_cast<std::int8_t>(codes[i]);
    const float scale = (*scales)[i / kCols];
    ASSERT_NEAR(static_cast<float>(code) * scale, values[i], scale * 0.5001F) << i;
    largest[i / kCols] = std::max(largest[i / kCols], std::abs(code));
  }
  EXPECT_THAT(largest, testing::ElementsAre(127, 127, 0, 127, 127));
  values[7] = std::nanf("");
  EXPECT_EQ(choose_scales(bytes, DType::kF32, blocks, pool).error().message,
            "holds NaN or infinity, which cannot be quantized to int8");
}

// Wherever the bytes are cut: the element of the largest magnitude of 32 becomes -8 scales, and the
// others are within half a scale, but those that would be +8 scales.
TEST(QuantizedWeights, Int4HasAScaleForEachBlock) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 100;
  std::vector<float> values = random_matrix(kRows, kCols);
  std::fill_n(values.begin() + kCols, 32, 0.0F);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const auto row_bytes = static_cast<std::size_t>(bytes_of(DType::kI4, kCols));
  EXPECT_EQ(row_bytes, 4 * kInt4Bytes);
  std::vector<std::byte> stored(kRows * row_bytes);
  const auto target = std::span(stored);
  ASSERT_TRUE(quantize_to_int4(bytes, DType::kF32, kCols, 0, target.first(77)));
  ASSERT_TRUE(quantize_to_int4(bytes, DType::kF32, kCols, 77, target.subspan(77)));
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::byte* codes = stored.data() + row * row_bytes;
    for (std::size_t first = 0; first < kCols; first += 32) {
      float largest = 0.0F;
      const std::size_t end = std::min<std::size_t>(kCols, first + 32);
      for (std::size_t i = first; i < end; ++i) {
        largest = std::max(largest, std::abs(values[row * kCols + i]));
      }
      for (std::size_t i = first; i < end; ++i) {
        const float value = values[row * kCols + i];
        const float scale = largest / 8 * 1.001F;
        ASSERT_NEAR(block_element(DType::kI4, codes, static_cast<std::int64_t>(i)), value,
                    std::abs(value) > 7 * scale ? scale : scale * 0.51F)
            << row << " " << i;
      }
    }
  }
  for (const float bad : {INFINITY, std::nanf(""), 0x1.1p18F}) {
    values[150] = bad;
    EXPECT_FALSE(quantize_to_int4(bytes, DType::kF32, kCols, 0, target));
  }
}

TEST(QuantizedWeights, ZerosTinyAndBadElements) {
  ThreadPool pool(1);
  const QuantizedBlocks blocks{1, 4, 1, 2};
  std::vector<float> values = {0, -0.0F, std::numeric_limits<float>::denorm_min(), 0};
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const auto scales = choose_scales(bytes, DType::kF32, blocks, pool);
  ASSERT_TRUE(scales);
  EXPECT_THAT(*scales, testing::Each(1.0F));
  std::vector<std::byte> codes(4);
  quantize(bytes, DType::kF32, blocks, *scales, 0, 4, codes.data());
  EXPECT_THAT(codes,
              testing::ElementsAre(std::byte{0}, std::byte{0x80}, std::byte{0}, std::byte{0}));
  for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    values[1] = bad;
    const auto refused = choose_scales(bytes, DType::kF32, blocks, pool);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("NaN or infinity"));
  }
}

TEST(QuantizedWeights, ExpandsToEveryDtypeAndFindsNan) {
  const std::vector<std::byte> codes = {std::byte{0x38}, std::byte{0xC4}, std::byte{0x7E},
                                        std::byte{0x01}};
  const QuantizedBlocks blocks{2, 2, 1, 2};
  const std::vector<float> scales = {2.0F, 0.25F};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> got(4 * size_of(dtype));
    expand(codes.data(), blocks, scales, 0, 4, got.data(), dtype);
    EXPECT_EQ(got, stored_as(dtype, {2.0F, -6.0F, 112.0F, 0x1p-11F}));
  }
  EXPECT_FALSE(has_nan(codes));
  EXPECT_TRUE(has_nan(std::vector<std::byte>{std::byte{1}, std::byte{0x7F}}));
  EXPECT_TRUE(has_nan(std::vector<std::byte>{std::byte{0xFF}}));
}

TEST(QuantizedWeights, ScalesOfACheckpoint) {
  const std::vector<float> scales = {0.5F, 0.0F, 3.0F};
  const auto bytes = stored_as(DType::kBF16, scales);
  EXPECT_EQ(*read_scales(bytes.data(), DType::kBF16, 3), scales);
  for (const float bad : {-1.0F, INFINITY, std::nanf("")}) {
    const auto refused = read_scales(stored_as(DType::kF32, {1.0F, bad}).data(), DType::kF32, 2);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("scale 1 is "));
  }
}

}  // namespace
}  // namespace sluice
