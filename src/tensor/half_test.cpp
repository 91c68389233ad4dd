#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

TEST(Half, EveryF16ValueRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_f16(value), half) << bits;
  }
}

TEST(Half, EveryBf16ValueRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_float(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_bf16(value), half) << bits;
  }
}

TEST(Half, MidpointsRoundToEven) {
  for (std::uint32_t bits = 0; bits < 0x7C00 - 1; ++bits) {
    const double low = f16_to_float(static_cast<std::uint16_t>(bits));
    const double high = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    const auto mid = static_cast<float>((low + high) / 2);
    if (static_cast<double>(mid) != (low + high) / 2) continue;
    ASSERT_EQ(float_to_f16(mid), (bits & 1U) == 0 ? bits : bits + 1) << bits;
  }
  EXPECT_EQ(float_to_bf16(bf16_to_float(0x3F80) + 0x1p-8F), 0x3F80);
  EXPECT_EQ(float_to_bf16(bf16_to_float(0x3F81) + 0x1p-8F), 0x3F82);
}

TEST(Half, SpecialValues) {
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(65519.0F), 0x7BFF);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
  EXPECT_EQ(float_to_f16(0x1p-24F), 1);
  EXPECT_EQ(float_to_f16(0x1p-25F), 0);
}

}  // namespace
}  // namespace sluice
