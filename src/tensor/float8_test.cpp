#include "tensor/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sluice {
namespace {

// By the definition: (-1)^s 2^(e - 7) (1 + m / 8), and 2^-6 m / 8 for e = 0.
double defined_value(unsigned code) {
  const unsigned exponent = code >> 3 & 15U;
  const unsigned mantissa = code & 7U;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -9)
                               : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

bool is_nan_code(unsigned code) { return (code & 0x7FU) == 0x7FU; }

TEST(Float8, EveryCodeHasItsValue) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if (is_nan_code(code)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(value, defined_value(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 0x80U) << code;
    EXPECT_EQ(float_to_e4m3(value), code);
  }
  EXPECT_EQ(e4m3_to_float(0x7E), kLargestE4M3);
}

// Between neighbours: below the middle, at it (to the even code), and above it.
TEST(Float8, RoundsToTheNearestAndTiesToEven) {
  for (unsigned code = 0; code < 0x7E; ++code) {
    const auto middle = static_cast<float>((defined_value(code) + defined_value(code + 1)) / 2);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0F)), code);
    EXPECT_EQ(float_to_e4m3(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1000.0F)), code + 1);
    EXPECT_EQ(float_to_e4m3(-middle), (code % 2 == 0 ? code : code + 1) | 0x80U);
  }
}

TEST(Float8, LargeValuesSaturateAndNanStays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float large : {448.0F, 449.0F, 464.0F, 480.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(float_to_e4m3(large), 0x7E) << large;
    EXPECT_EQ(float_to_e4m3(-large), 0xFE) << large;
  }
  EXPECT_TRUE(is_nan_code(float_to_e4m3(std::nanf(""))));
  EXPECT_TRUE(is_nan_code(float_to_e4m3(-std::nanf(""))));
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_e4m3(-0.0F), 0x80);
}

}  // namespace
}  // namespace sluice
