#include "serverless/arrival_rate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint at(double s) { return {from_seconds(s)}; }

TEST(DecayingRateTest, FollowsAConstantRateFromTheStart) {
  DecayingRate rate(at(100), seconds(60));
  EXPECT_EQ(rate.per_second(at(100)), 0);
  for (int i = 1; i <= 600; ++i) {
    rate.add(at(100 + 0.5 * i));
    if (i >= 60) {
      EXPECT_NEAR(rate.per_second(at(100 + 0.5 * i)), 2.0, 0.1) << i;
    }
  }
}

TEST(DecayingRateTest, HalvesInAHalfLifeAndFollowsAChange) {
  DecayingRate rate(at(0), seconds(10));
  for (int i = 1; i <= 1000; ++i) rate.add(at(i * 0.1));  // ten half-lives at 10 per second
  EXPECT_NEAR(rate.per_second(at(100)), 10, 0.4);
  EXPECT_NEAR(rate.per_second(at(110)), 5, 0.2);
  EXPECT_NEAR(rate.per_second(at(120)), 2.5, 0.1);
}

TEST(DecayingRateTest, OneArrivalAtTheStartIsNotAnEndlessRate) {
  DecayingRate rate(at(5), seconds(64));
  rate.add(at(5));
  EXPECT_LT(rate.per_second(at(5)), 1.0 / 7);
}

TEST(GapHistogramTest, ProbabilitiesAreWithinABucket) {
  GapHistogram gaps;
  EXPECT_EQ(gaps.probability_within(Duration(0), seconds(1)), 0);
  for (int i = 1; i <= 100; ++i) gaps.add(milliseconds(i * 10));
  for (const double part : {0.05, 0.5, 0.99}) {
    const Duration exact = from_seconds(part);
    EXPECT_LE(gaps.probability_within(Duration(0), exact * 10 / 12), part) << part;
    EXPECT_GE(gaps.probability_within(Duration(0), exact * 12 / 10), part * 0.999) << part;
  }
}

TEST(GapHistogramTest, KnowsAPeriodThatTheRateForgets) {
  Arrivals calls(at(0), seconds(60));
  for (int i = 1; i <= 20; ++i) calls.add(at(600.0 * i));
  const double last = 600.0 * 20;
  EXPECT_EQ(calls.gaps().probability_within(seconds(60), seconds(60)), 0);
  EXPECT_GT(calls.gaps().probability_within(seconds(550), seconds(100)), 0.6);
  // Just before the next call, the rate alone is 1/1000 of what it was after the last one.
  DecayingRate rate(at(0), seconds(60));
  for (int i = 1; i <= 20; ++i) rate.add(at(600.0 * i));
  EXPECT_LT(rate.per_second(at(last + 599)), 1e-4);
  EXPECT_GT(calls.expected_rate(at(last + 599), seconds(60)), 0.5 / 60);
}

TEST(GapHistogramTest, MemorylessGapsHaveOneProbability) {
  SplitMix64 random(1);
  GapHistogram gaps;
  for (int i = 0; i < 500; ++i) gaps.add(from_seconds(-std::log(1 - random.uniform())));
  const double expected = 1 - std::exp(-0.5);
  for (const int ms : {0, 200, 500, 1000}) {
    EXPECT_NEAR(gaps.probability_within(milliseconds(ms), milliseconds(500)), expected, 0.08) << ms;
  }
}

TEST(GapHistogramTest, OldGapsFadeOut) {
  GapHistogram gaps;
  for (int i = 0; i < 511; ++i) gaps.add(seconds(1));
  for (int i = 0; i < 3000; ++i) gaps.add(seconds(100));
  EXPECT_LT(gaps.count(), GapHistogram::kMostGaps);
  EXPECT_LT(gaps.probability_within(Duration(0), seconds(84)), 0.05);
}

TEST(GapHistogramTest, ExtremeGapsCountInTheOuterBuckets) {
  GapHistogram gaps;
  gaps.add(Duration(0));
  gaps.add(std::chrono::hours(10000));
  EXPECT_EQ(gaps.count(), 2);
  EXPECT_EQ(gaps.probability_within(Duration(0), milliseconds(1)), 0.5);
  EXPECT_EQ(gaps.probability_within(milliseconds(1), std::chrono::hours(50)), 0);
  EXPECT_EQ(gaps.probability_within(std::chrono::hours(100000), seconds(1)), 0);
}

TEST(ArrivalsTest, FirstCallHasNoGap) {
  Arrivals calls(at(0), seconds(60));
  calls.add(at(1000));
  EXPECT_EQ(calls.gaps().count(), 0);
  EXPECT_EQ(calls.since_last(at(1003)), seconds(3));
}

}  // namespace
}  // namespace sluice
