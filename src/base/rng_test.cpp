#include "base/rng.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, MatchesKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SamplingUniform, DependsOnSeedChoiceAndIndexAlone) {
  const double x = sampling_uniform(7, 0, 3);
  EXPECT_EQ(x, sampling_uniform(7, 0, 3));
  EXPECT_NE(x, sampling_uniform(8, 0, 3));
  EXPECT_NE(x, sampling_uniform(7, 1, 3));
  EXPECT_NE(x, sampling_uniform(7, 0, 4));
}

TEST(SamplingUniform, IsUniform) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = sampling_uniform(1, 0, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(SplitMix64, BelowStaysBelow) {
  SplitMix64 rng(42);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(rng.below(7), 7U);
}

}  // namespace
}  // namespace sluice
