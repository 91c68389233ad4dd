#include "workload/capacity_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

CapacityOptions options_from(double start_rate) {
  CapacityOptions options;
  options.objective.p99_tbt = milliseconds(100);
  options.start_rate = start_rate;
  return options;
}

CapacityProbe response(double p99_ms, double delay_s) {
  CapacityProbe probe;
  probe.p99_tbt = Duration(static_cast<std::int64_t>(p99_ms * 1e6));
  probe.median_scheduling_delay = Duration(static_cast<std::int64_t>(delay_s * 1e9));
  return probe;
}

// TBT grows with the rate and reaches the objective at `capacity`.
auto tbt_bound(double capacity) {
  return [capacity](double rate) -> Result<CapacityProbe> {
    return response(100 * rate / capacity, 0.01);
  };
}

// The properties of every result.
void expect_consistent(const CapacityOptions& options, const CapacityResult& result) {
  EXPECT_LE(result.probes.size(), static_cast<std::size_t>(options.max_probes));
  double largest_met = 0;
  double smallest_failed = 0;
  std::set<double> rates;
  for (const CapacityProbe& probe : result.probes) {
    EXPECT_TRUE(rates.insert(probe.rate).second) << probe.rate << " probed twice";
    if (probe.met) largest_met = std::max(largest_met, probe.rate);
    if (!probe.met && (smallest_failed == 0 || probe.rate < smallest_failed)) {
      smallest_failed = probe.rate;
    }
  }
  EXPECT_EQ(result.rate, largest_met);
  EXPECT_EQ(result.failing_rate, smallest_failed);
  if (!result.exhausted && result.rate > 0) {
    EXPECT_GT(result.failing_rate, result.rate);
    EXPECT_LE(result.failing_rate - result.rate, options.resolution * result.rate);
  }
}

TEST(CapacitySearch, FindsTheCapacityFromAnyStart) {
  for (const double start : {0.01, 0.5, 3.0, 4.0, 100.0, 1000.0}) {
    CapacityOptions options = options_from(start);
    options.max_probes = 40;
    const auto result = search_capacity(options, tbt_bound(3.7));
    ASSERT_TRUE(result);
    expect_consistent(options, *result);
    EXPECT_FALSE(result->exhausted);
    EXPECT_LE(result->rate, 3.7);
    EXPECT_GE(result->rate, 3.7 / 1.025) << start;
  }
}

TEST(CapacitySearch, TakesFewProbes) {
  const auto result = search_capacity(options_from(1), tbt_bound(3.7));
  ASSERT_TRUE(result);
  EXPECT_LE(result->probes.size(), 9U);
}

TEST(CapacitySearch, BothPartsOfTheObjectiveCount) {
  // Queues form at 2.2 requests per second, while TBT stays small.
  const auto result = search_capacity(options_from(1), [](double rate) -> Result<CapacityProbe> {
    return response(20, rate < 2.2 ? 0.1 : 50);
  });
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->rate, 2.2, 0.06);
  for (const CapacityProbe& probe : result->probes) EXPECT_EQ(probe.met, probe.rate < 2.2);
}

TEST(CapacitySearch, ABoundOfTtftCountsIfItIsGiven) {
  const auto probe = [](double rate) -> Result<CapacityProbe> {
    CapacityProbe at = response(20, 0.1);
    at.ttft = from_seconds(rate < 3.1 ? 0.9 : 5);
    return at;
  };
  CapacityOptions options = options_from(1);
  options.objective.ttft = std::chrono::seconds(1);
  const auto result = search_capacity(options, probe);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->rate, 3.1, 0.08);
  for (const CapacityProbe& each : result->probes) EXPECT_EQ(each.met, each.rate < 3.1);
  options.objective.ttft.reset();
  EXPECT_EQ(search_capacity(options, probe)->failing_rate, 0);
  options.objective.ttft = Duration(0);
  const auto refused = search_capacity(options, probe);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("TTFT objective: got 0 ms"));
}

TEST(CapacitySearch, JustMetIsMet) {
  const auto result = search_capacity(options_from(1), [](double rate) -> Result<CapacityProbe> {
    return response(rate <= 1 ? 100 : 101, 2.0);
  });
  ASSERT_TRUE(result);
  EXPECT_EQ(result->rate, 1);
}

TEST(CapacitySearch, AnObjectiveThatNothingMeets) {
  const CapacityOptions options = options_from(4);
  const auto result =
      search_capacity(options, [](double) -> Result<CapacityProbe> { return response(150, 0); });
  ASSERT_TRUE(result);
  expect_consistent(options, *result);
  EXPECT_EQ(result->rate, 0);
  EXPECT_EQ(result->failing_rate, 4.0 / 1024);
  EXPECT_FALSE(result->exhausted);
  EXPECT_LE(result->probes.size(), 8U);
}

TEST(CapacitySearch, AnObjectiveThatAllMeet) {
  const CapacityOptions options = options_from(4);
  const auto result =
      search_capacity(options, [](double) -> Result<CapacityProbe> { return response(1, 0); });
  ASSERT_TRUE(result);
  expect_consistent(options, *result);
  EXPECT_TRUE(result->exhausted);
  EXPECT_EQ(result->probes.size(), 20U);
  EXPECT_EQ(result->rate, 4 * std::pow(2.0, 19));
  EXPECT_EQ(result->failing_rate, 0);
}

TEST(CapacitySearch, StopsAtTheLastProbe) {
  CapacityOptions options = options_from(1);
  options.max_probes = 4;
  const auto result = search_capacity(options, tbt_bound(3.7));
  ASSERT_TRUE(result);
  expect_consistent(options, *result);
  EXPECT_TRUE(result->exhausted);
  EXPECT_EQ(result->rate, 3);  // 1, 2, 4, 3
}

TEST(CapacitySearch, NoisyProbesEndNearTheCapacity) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    const CapacityOptions options = options_from(1);
    const auto result = search_capacity(options, [&](double rate) -> Result<CapacityProbe> {
      return response(100 * rate / 3.7 * (0.9 + 0.2 * random.uniform()), 0.1);
    });
    ASSERT_TRUE(result);
    expect_consistent(options, *result);
    EXPECT_FALSE(result->exhausted);
    EXPECT_GT(result->rate, 3.7 / 1.1 / 1.025);
    EXPECT_LT(result->rate, 3.7 / 0.9);
  }
}

// Responses of pure chance: whatever they are, the search ends and its bounds are true.
TEST(CapacitySearch, AnyResponsesAtAll) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SplitMix64 random(seed);
    CapacityOptions options = options_from(0.01 + 10 * random.uniform());
    options.max_probes = static_cast<int>(1 + random.below(30));
    const double share = random.uniform();
    const auto result = search_capacity(options, [&](double) -> Result<CapacityProbe> {
      return response(random.uniform() < share ? 50 : 150, 0);
    });
    ASSERT_TRUE(result);
    expect_consistent(options, *result);
  }
}

TEST(CapacitySearch, ADipKeepsTheResultBelowIt) {
  // Met below 2, not from 2 to 3, met again up to 5.
  const auto result = search_capacity(options_from(2.5), [](double rate) -> Result<CapacityProbe> {
    return response((rate >= 2 && rate < 3) || rate > 5 ? 150 : 50, 0);
  });
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->rate, 2, 0.05);
}

TEST(CapacitySearch, AnErrorEndsIt) {
  int calls = 0;
  const auto result = search_capacity(options_from(1), [&](double) -> Result<CapacityProbe> {
    if (++calls == 3) return unavailable("the server is gone");
    return response(1, 0);
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "the server is gone");
  EXPECT_EQ(calls, 3);
}

TEST(CapacitySearch, BadOptionsAreNamed) {
  const auto message = [](CapacityOptions options) {
    const auto result = search_capacity(options, tbt_bound(1));
    return result ? "accepted" : result.error().message;
  };
  CapacityOptions options;  // without an objective
  EXPECT_THAT(message(options), HasSubstr("P99 TBT objective: got 0 ms"));
  options = options_from(0);
  EXPECT_THAT(message(options), HasSubstr("start rate: got 0"));
  options = options_from(INFINITY);
  EXPECT_THAT(message(options), HasSubstr("start rate: got inf"));
  options = options_from(1);
  options.resolution = 0;
  EXPECT_THAT(message(options), HasSubstr("resolution: got 0"));
  options = options_from(1);
  options.max_probes = 0;
  EXPECT_THAT(message(options), HasSubstr("probes: got at most 0"));
  options = options_from(1);
  options.objective.median_scheduling_delay = milliseconds(-1);
  EXPECT_THAT(message(options), HasSubstr("median scheduling delay objective: got -1 ms"));
}

}  // namespace
}  // namespace sluice
