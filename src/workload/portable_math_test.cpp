#include "workload/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace sluice {
namespace {

TEST(PortableMath, LogarithmAsTheLibrarys) {
  SplitMix64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const int exponent = static_cast<int>(random.below(120)) - 60;
    const double x = std::ldexp(random.uniform() + 0x1.0p-53, exponent);
    ASSERT_NEAR(portable_log(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  EXPECT_EQ(portable_log(1), 0);
  for (const double x :
       {std::numeric_limits<double>::denorm_min(), 0x1.0p-53, std::numeric_limits<double>::max()}) {
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-13) << x;
  }
}

TEST(PortableMath, ExponentialAsTheLibrarys) {
  SplitMix64 random(2);
  for (int i = 0; i < 20'000; ++i) {
    const double x = 1400 * random.uniform() - 700;
    ASSERT_NEAR(portable_exp(x) / std::exp(x), 1, 1e-15) << x;
  }
  EXPECT_EQ(portable_exp(0), 1);
}

// The very bits: these may differ on no machine.
TEST(PortableMath, BitsAreTheSameEverywhere) {
  EXPECT_EQ(portable_log(0.3), -0x1.34378fcbda721p+0);
  EXPECT_EQ(portable_log(1234.5), 0x1.c79436f818745p+2);
  EXPECT_EQ(portable_exp(-1.5), 0x1.c8f87724b5c1dp-3);
}

}  // namespace
}  // namespace sluice
