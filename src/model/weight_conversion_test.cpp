#include "model/weight_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "tensor/half.h"

namespace sluice {
namespace {

// One element through a conversion, at an odd address on both sides.
std::vector<std::byte> convert(const void* value, DType from, DType to) {
  std::vector<std::byte> source(1 + size_of(from));
  std::memcpy(source.data() + 1, value, size_of(from));
  std::vector<std::byte> target(1 + size_of(to));
  convert_weights(source.data() + 1, from, target.data() + 1, to, 1);
  return {target.begin() + 1, target.end()};
}

template <class T>
T as(const std::vector<std::byte>& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

TEST(WeightConversionTest, WideningIsExactForEveryPattern) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    EXPECT_EQ(as<std::uint32_t>(convert(&bits, DType::kBF16, DType::kF32)),
              std::bit_cast<std::uint32_t>(bf16_to_float(bits)));
    EXPECT_EQ(as<std::uint32_t>(convert(&bits, DType::kF16, DType::kF32)),
              std::bit_cast<std::uint32_t>(f16_to_float(bits)));
  }
}

TEST(WeightConversionTest, NarrowingRoundsToNearestEven) {
  const float above_half = 1.0F + 0x1.01p-8F;  // just above the middle of two bfloat16
  const float tie_to_even = 1.0F + 0x1p-8F;
  EXPECT_EQ(as<std::uint16_t>(convert(&above_half, DType::kF32, DType::kBF16)), 0x3F81);
  EXPECT_EQ(as<std::uint16_t>(convert(&tie_to_even, DType::kF32, DType::kBF16)), 0x3F80);
  const float too_large = 70000.0F;
  EXPECT_EQ(as<std::uint16_t>(convert(&too_large, DType::kF32, DType::kF16)), 0x7C00);
}

TEST(WeightConversionTest, SameTypeIsACopyAndHalvesPassThroughFloat) {
  const std::uint16_t nan = 0x7FA5;
  EXPECT_EQ(as<std::uint16_t>(convert(&nan, DType::kBF16, DType::kBF16)), nan);
  const std::uint16_t one_and_a_half = 0x3FC0;  // bfloat16
  EXPECT_EQ(as<std::uint16_t>(convert(&one_and_a_half, DType::kBF16, DType::kF16)), 0x3E00);
}

TEST(WeightConversionTest, ConvertsAllElementsAndNoMore) {
  std::vector<float> source = {1, -2, 3.5F, 0, 100};
  std::vector<std::uint16_t> target(6, 0xAAAA);
  convert_weights(reinterpret_cast<const std::byte*>(source.data()), DType::kF32,
                  reinterpret_cast<std::byte*>(target.data()), DType::kBF16, 5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(bf16_to_float(target[i]), source[i]);
  EXPECT_EQ(target[5], 0xAAAA);
}

}  // namespace
}  // namespace sluice
