#include "metrics/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/rng.h"

namespace sluice {
namespace {

using testing::ElementsAre;

TEST(HistogramTest, ABucketHoldsItsUpperBoundAndTheLastTakesTheRest) {
  Histogram h({1, 2, 5});
  for (const double value : {0.0, 1.0, 1.0001, 2.0, 5.0, 5.1, 1e9, -3.0}) h.record(value);
  EXPECT_THAT(h.counts(), ElementsAre(3, 2, 1, 2));
  EXPECT_EQ(h.count(), 8);
  EXPECT_DOUBLE_EQ(h.sum(), 1e9 + 11.1001);
  h.record(1.5, 3);
  EXPECT_THAT(h.counts(), ElementsAre(3, 5, 1, 2));
  EXPECT_EQ(h.count(), 11);
  EXPECT_DOUBLE_EQ(h.sum(), 1e9 + 15.6001);
}

TEST(HistogramTest, QuantilesAreLinearWithinABucket) {
  Histogram h({10, 20, 40});
  EXPECT_EQ(h.quantile(0.5), std::nullopt);
  h.record(15, 4);
  EXPECT_EQ(h.quantile(0), 10);
  EXPECT_EQ(h.quantile(0.5), 15);
  EXPECT_EQ(h.quantile(1), 20);
  h.record(5, 4);  // the lowest bucket begins at 0
  EXPECT_EQ(h.quantile(0.25), 5);
  EXPECT_EQ(h.quantile(0.5), 10);
  h.record(1000, 8);  // above the last bound
  EXPECT_EQ(h.quantile(0.5), 20);
  EXPECT_EQ(h.quantile(0.99), 40);
}

TEST(HistogramTest, QuantilesOfManyValuesFallIntoTheRightBucket) {
  Histogram h(decade_bounds(std::array{1.0, 1.5, 2.0, 3.0, 5.0, 7.5}, 1, 1000));
  std::vector<double> values;
  SplitMix64 rng(1);
  for (int i = 0; i < 10000; ++i) {
    values.push_back(1 + static_cast<double>(rng.below(900'000)) / 1000);
    h.record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double q : {0.01, 0.25, 0.5, 0.9, 0.99}) {
    const double exact = values[static_cast<std::size_t>(q * 10000)];
    const auto bound = std::lower_bound(h.bounds().begin(), h.bounds().end(), exact);
    EXPECT_LE(*h.quantile(q), *bound) << q;
    EXPECT_GE(*h.quantile(q), *(bound - 1)) << q;
  }
}

TEST(HistogramTest, DecadeBoundsAreTheDecimalsThemselves) {
  EXPECT_THAT(decade_bounds(std::array{1.0, 2.0, 5.0}, 0.01, 20),
              ElementsAre(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20));
  EXPECT_THAT(decade_bounds(std::array{1.0, 1.5, 3.0, 7.5}, 0.0003, 0.01),
              ElementsAre(0.0003, 0.00075, 0.001, 0.0015, 0.003, 0.0075, 0.01));
  EXPECT_THAT(decade_bounds(std::array{1.0}, 5, 5), ElementsAre());
}

}  // namespace
}  // namespace sluice
