// The policies of src/serverless together, on virtual time. GatewaySimulation checks the rules
// after every tick: budgets, nothing in use leaves, no request waits beyond its SLO, each ends
// once, the bill is the whole machine, and all instances end when calls do.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tests/support/gateway_simulation.h"

namespace sluice::test {
namespace {

GatewayReport run(const GatewayWorld& world) { return GatewaySimulation(world).run(); }

TEST(GatewayPoliciesTest, RandomWorldsKeepEveryRule) {
  GatewayReport sum;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SplitMix64 random(seed);
    GatewayWorld world;
    world.seed = seed;
    world.devices = 1 + static_cast<std::int32_t>(random.below(3));
    world.backbones = 1 + static_cast<std::int32_t>(random.below(3));
    world.functions = 3 + static_cast<std::int32_t>(random.below(10));
    world.device_bytes = 260 + static_cast<std::int64_t>(random.below(300));
    world.host_bytes = 20 + static_cast<std::int64_t>(random.below(500));
    world.calls_per_second = 1 + 30 * random.uniform();
    world.seconds = 30;
    world.deaths_per_second = random.uniform();
    if (seed % 4 == 3) world.mode = Batching::kFillOrExpire;
    const GatewayReport report = run(world);
    sum.calls += report.calls;
    sum.answered += report.answered;
    sum.late += report.late;
    sum.crowded += report.crowded;
    sum.failed += report.failed;
    sum.loads += report.loads;
    sum.offloads += report.offloads;
    sum.starts += report.starts;
  }
  std::printf(
      "calls %ld, answered %ld, refused late %ld, refused crowded %ld, failed %ld, "
      "pre-loads %ld, offloads %ld, starts %ld\n",
      sum.calls, sum.answered, sum.late, sum.crowded, sum.failed, sum.loads, sum.offloads,
      sum.starts);
  // All paths have run.
  EXPECT_GT(sum.answered, sum.calls / 2);
  EXPECT_GT(sum.late, 0);
  EXPECT_GT(sum.crowded, 0);
  EXPECT_GT(sum.failed, 0);
  EXPECT_GT(sum.loads, 0);
  EXPECT_GT(sum.offloads, 0);
}

TEST(GatewayPoliciesTest, SameSeedSameRun) {
  GatewayWorld world;
  const GatewayReport first = run(world);
  EXPECT_EQ(first.digest, run(world).digest);
  world.seed = 1;
  EXPECT_NE(first.digest, run(world).digest);
}

struct Mean {
  double p50_ms = 0;
  double p99_ms = 0;
  double answered = 0;  // of calls
};

Mean mean_of(GatewayWorld world) {
  constexpr int kSeeds = 10;
  Mean mean;
  for (world.seed = 100; world.seed < 100 + kSeeds; ++world.seed) {
    const GatewayReport report = run(world);
    mean.p50_ms += report.p50_ms / kSeeds;
    mean.p99_ms += report.p99_ms / kSeeds;
    mean.answered +=
        static_cast<double>(report.answered) / static_cast<double>(report.calls) / kSeeds;
  }
  return mean;
}

TEST(GatewayPoliciesTest, WorkConservingIsFasterThanFillOrExpire) {
  GatewayWorld world;
  world.deaths_per_second = 0;
  const Mean conserving = mean_of(world);
  world.mode = Batching::kFillOrExpire;
  const Mean held = mean_of(world);
  std::printf(
      "TTFT P50/P99 ms: work-conserving %.0f/%.0f, fill-or-expire %.0f/%.0f; answered %.3f, "
      "%.3f\n",
      conserving.p50_ms, conserving.p99_ms, held.p50_ms, held.p99_ms, conserving.answered,
      held.answered);
  EXPECT_LT(conserving.p50_ms, held.p50_ms / 2);
  EXPECT_LE(conserving.p99_ms, held.p99_ms);
  EXPECT_GE(conserving.answered, held.answered);
}

TEST(GatewayPoliciesTest, PreloadingShortensTheFirstToken) {
  GatewayWorld world;
  world.deaths_per_second = 0;
  world.calls_per_second = 1;
  const Mean with = mean_of(world);
  world.preload = false;
  const Mean without = mean_of(world);
  std::printf("TTFT P50/P99 ms: pre-loading %.0f/%.0f, without %.0f/%.0f\n", with.p50_ms,
              with.p99_ms, without.p50_ms, without.p99_ms);
  EXPECT_LE(with.p50_ms, without.p50_ms);
  EXPECT_LE(with.p99_ms, without.p99_ms);
}

}  // namespace
}  // namespace sluice::test
