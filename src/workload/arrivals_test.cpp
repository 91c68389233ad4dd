#include "workload/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "workload/lengths.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

struct Gaps {
  double mean = 0;  // seconds
  double cov = 0;
};

Gaps gaps_of(const std::vector<Duration>& arrivals) {
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const double gap = to_seconds(arrivals[i] - arrivals[i - 1]);
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(arrivals.size() - 1);
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean) / mean};
}

TEST(Arrivals, InfiniteRateIsAllAtOnce) {
  const auto arrivals = make_arrivals({}, 5);
  ASSERT_TRUE(arrivals);
  EXPECT_EQ(*arrivals, std::vector<Duration>(5, Duration(0)));
}

TEST(Arrivals, GapsHaveTheRateAndTheCov) {
  for (const double burstiness : {0.05, 0.25, 0.5, 1.0, 2.0, 10.0, 400.0}) {
    const auto arrivals = make_arrivals({4.0, burstiness, 7}, 200'000);
    ASSERT_TRUE(arrivals);
    EXPECT_EQ(arrivals->front(), Duration(0));
    EXPECT_TRUE(std::is_sorted(arrivals->begin(), arrivals->end()));
    const Gaps gaps = gaps_of(*arrivals);
    EXPECT_NEAR(gaps.mean, 0.25, 0.25 * 0.03) << burstiness;
    EXPECT_NEAR(gaps.cov, 1 / std::sqrt(burstiness), 0.03 / std::sqrt(burstiness)) << burstiness;
  }
}

TEST(Arrivals, TheBurstiestHasGapsTooSmallForANumber) {
  const auto arrivals = make_arrivals({4.0, 0.01, 7}, 50'000);
  ASSERT_TRUE(arrivals);
  EXPECT_TRUE(std::is_sorted(arrivals->begin(), arrivals->end()));
  EXPECT_NEAR(gaps_of(*arrivals).mean, 0.25, 0.05);  // of few long gaps
}

// Sarathi-Serve's generator clips gaps at three means, which raises the rate by 5 %.
TEST(Arrivals, LongGapsAreNotClipped) {
  const auto arrivals = make_arrivals({1.0, 1.0, 3}, 100'000);
  ASSERT_TRUE(arrivals);
  std::int64_t long_gaps = 0;
  for (std::size_t i = 1; i < arrivals->size(); ++i) {
    if ((*arrivals)[i] - (*arrivals)[i - 1] > std::chrono::seconds(3)) ++long_gaps;
  }
  EXPECT_NEAR(static_cast<double>(long_gaps), std::exp(-3.0) * 100'000, 250);
}

// The gamma distribution itself, not only its first two moments: shape 2 (Erlang) has a closed
// distribution function.
TEST(Arrivals, GammaGapsAreDistributedAsErlang) {
  const auto arrivals = make_arrivals({1.0, 2.0, 5}, 100'001);
  ASSERT_TRUE(arrivals);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < arrivals->size(); ++i) {
    gaps.push_back(to_seconds((*arrivals)[i] - (*arrivals)[i - 1]));
  }
  std::sort(gaps.begin(), gaps.end());
  double distance = 0;  // Kolmogorov and Smirnov's
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const double x = 2 * gaps[i];
    const double expected = 1 - std::exp(-x) * (1 + x);
    distance = std::max(distance, std::abs(expected - static_cast<double>(i) / 100'000));
  }
  EXPECT_LT(distance, 1.63 / std::sqrt(100'000.0));  // 1 % of right samples are further off
}

// The same on every machine and with every C library.
TEST(Arrivals, TimesOfASeedNeverChange) {
  const auto poisson = make_arrivals({2.0, 1.0, 42}, 4);
  const auto bursty = make_arrivals({2.0, 0.5, 42}, 4);
  const auto even = make_arrivals({2.0, 3.0, 42}, 4);
  ASSERT_TRUE(poisson && bursty && even);
  const auto ns = [](const std::vector<Duration>& times) {
    std::vector<std::int64_t> counts;
    for (const Duration time : times) counts.push_back(time.count());
    return counts;
  };
  EXPECT_EQ(ns(*poisson), (std::vector<std::int64_t>{0, 211882631, 638120570, 1063238429}));
  EXPECT_EQ(ns(*bursty), (std::vector<std::int64_t>{0, 81951574, 692289403, 934440373}));
  EXPECT_EQ(ns(*even), (std::vector<std::int64_t>{0, 105139410, 301125265, 638288911}));
}

TEST(Arrivals, SeedsDiffer) {
  const auto a = make_arrivals({2.0, 1.0, 0}, 10);
  const auto b = make_arrivals({2.0, 1.0, 1}, 10);
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
}

// One seed for both must not make long prompts come after long gaps.
TEST(Arrivals, LengthsOfTheSameSeedDoNotDependOnTheGaps) {
  constexpr std::int64_t kCount = 20'000;
  const auto arrivals = make_arrivals({1.0, 1.0, 0}, kCount);
  const auto lengths = make_lengths("uniform:1-1000,1-1000", kCount, 0, 0);
  ASSERT_TRUE(arrivals && lengths);
  for (const std::size_t shift : {0, 1}) {
    double sum = 0;
    for (std::size_t i = 1; i < arrivals->size(); ++i) {
      const Duration gap = (*arrivals)[i] - (*arrivals)[i - 1];
      sum += (to_seconds(gap) - 1) * ((*lengths)[i - shift].prompt_tokens - 500.5) / 288.7;
    }
    EXPECT_NEAR(sum / kCount, 0, 0.03) << shift;
  }
}

TEST(Arrivals, BadOptionsAreNamed) {
  const auto message = [](ArrivalOptions options, std::int64_t count) {
    const auto arrivals = make_arrivals(options, count);
    return arrivals ? "accepted" : arrivals.error().message;
  };
  EXPECT_THAT(message({0.0, 1.0, 0}, 1), HasSubstr("request rate: got 0, expected a positive"));
  EXPECT_THAT(message({-1.0, 1.0, 0}, 1), HasSubstr("request rate: got -1"));
  EXPECT_THAT(message({std::nan(""), 1.0, 0}, 1), HasSubstr("request rate: got nan"));
  EXPECT_THAT(message({1.0, 0.0, 0}, 1), HasSubstr("burstiness: got 0, expected a number"));
  EXPECT_THAT(message({1.0, INFINITY, 0}, 1), HasSubstr("burstiness: got inf"));
  EXPECT_THAT(message({1.0, 1.0, 0}, 0), HasSubstr("number of requests: got 0"));
  EXPECT_THAT(message({1.0, 1.0, 0}, 1'000'000'000'000), HasSubstr("number of requests"));
  EXPECT_THAT(message({1e-12, 1.0, 0}, 100), HasSubstr("more than thirty years; raise the rate"));
}

TEST(RateSteps, EachStepHasItsRate) {
  const auto steps = parse_rate_steps("2x100,20x50,0.5x200").value();
  ASSERT_EQ(steps.size(), 3U);
  for (const double burstiness : {1.0, 0.25}) {
    const auto times = make_step_arrivals(steps, {.burstiness = burstiness, .seed = 3}).value();
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    const auto between = [&](double from, double to) {
      return static_cast<double>(std::count_if(times.begin(), times.end(), [&](Duration t) {
        return to_seconds(t) >= from && to_seconds(t) < to;
      }));
    };
    EXPECT_NEAR(between(0, 100), 200, 80);
    EXPECT_NEAR(between(100, 150), 1000, 200);
    EXPECT_NEAR(between(150, 350), 100, 60);
    EXPECT_LT(to_seconds(times.back()), 350);
    EXPECT_EQ(make_step_arrivals(steps, {.burstiness = burstiness, .seed = 3}).value(), times);
  }
}

TEST(RateSteps, AreRefusedByTheWrongPart) {
  for (const char* const text : {"", "2", "2x", "x3", "2x3,", "0x3", "2x-1", "2x3;4x5", "nanx3"}) {
    EXPECT_THAT(parse_rate_steps(text).error().message, HasSubstr("is no step")) << text;
  }
  const auto many = parse_rate_steps("1000000x10000000").value();
  EXPECT_THAT(make_step_arrivals(many, {}).error().message, HasSubstr("at most"));
}

}  // namespace
}  // namespace sluice
