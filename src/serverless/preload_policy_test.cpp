#include "serverless/preload_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "serverless/artifact_catalog.h"
#include "serverless/test_artifacts.h"

namespace sluice {
namespace {

using test::check_plan;
using test::Instance;
using testing::ElementsAre;
using testing::IsEmpty;

// One backbone (artifact 0) of 100 bytes and `adapters` adapters of 10 bytes, in one memory.
Instance one_backbone(int adapters, std::int64_t idle) {
  Instance instance;
  instance.artifacts.num_artifacts = adapters + 1;
  instance.artifacts.num_memories = 1;
  instance.artifacts.add(0, 0, 100, 5);
  for (int i = 1; i <= adapters; ++i) instance.artifacts.add(i, 0, 10, 1, {0});
  instance.rates.assign(static_cast<std::size_t>(adapters) + 1, 1.0);
  instance.rates[0] = adapters;
  instance.idle = {idle};
  instance.residency.assign(instance.artifacts.placements.size(), Residency::kAbsent);
  return instance;
}

// Two hosts of four devices, four backbones and 30 functions. All of them need more memory than
// there is.
Instance cluster(std::uint64_t seed) {
  SplitMix64 random(seed);
  const auto cost = [&](std::int64_t bytes, double seconds) {
    return ArtifactCost{
        bytes / 2 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bytes))),
        seconds * (0.5 + random.uniform())};
  };
  CatalogSpec spec;
  spec.hosts = 2;
  spec.host_of_device = {0, 0, 0, 0, 1, 1, 1, 1};
  spec.worker = cost(200, 2);
  std::vector<double> rates;
  for (int b = 0; b < 4; ++b) {
    spec.backbones.push_back({cost(8000, 4), cost(8000, 1), cost(10, 0.5), cost(300, 1)});
  }
  for (int f = 0; f < 30; ++f) {
    const auto backbone = static_cast<std::int32_t>(random.below(4));
    spec.functions.push_back(
        {backbone, random.below(4) != 0, cost(100, 0.4), cost(100, 0.1), cost(470, 1)});
    rates.push_back(random.uniform() * random.uniform());
  }
  const ArtifactCatalog catalog(spec);
  Instance instance;
  instance.artifacts = catalog.artifacts();
  instance.rates = catalog.rates(rates);
  instance.residency.assign(instance.artifacts.placements.size(), Residency::kAbsent);
  instance.idle = {12'000, 12'000};
  for (int d = 0; d < 8; ++d) {
    instance.idle.push_back(8000 + static_cast<std::int64_t>(random.below(6000)));
  }
  return instance;
}

// Takes the densest placement with all that it still needs, until none fits. It evaluates every
// placement at each step.
double value_of_simple_greedy(const Instance& instance) {
  const auto& placements = instance.artifacts.placements;
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  std::vector<bool> placed(placements.size());
  std::vector<double> saved(instance.rates.size());
  std::vector<std::int64_t> left = instance.idle;
  while (true) {
    double best_density = 0;
    std::vector<std::int32_t> best;
    for (std::int32_t p = 0; p < std::ssize(placements); ++p) {
      if (placed[at(p)]) continue;
      std::vector<std::int32_t> bundle = {p};
      std::vector<double> saved_then = saved;
      std::vector<std::int64_t> left_then = left;
      double gain = 0;
      double part = 0;
      for (std::size_t i = 0; i < bundle.size(); ++i) {
        const Placement& one = placements[at(bundle[i])];
        double& so_far = saved_then[at(one.artifact)];
        gain += instance.rates[at(one.artifact)] * std::max(one.saved_s - so_far, 0.0);
        so_far = std::max(so_far, one.saved_s);
        part += static_cast<double>(one.bytes) / static_cast<double>(instance.idle[at(one.memory)]);
        left_then[at(one.memory)] -= one.bytes;
        for (const std::int32_t need : instance.artifacts.needs_of(one)) {
          const bool known = std::ranges::find(bundle, need) != bundle.end();
          if (!placed[at(need)] && !known) bundle.push_back(need);
        }
      }
      if (std::ranges::min(left_then) < 0 || gain / part <= best_density) continue;
      best_density = gain / part;
      best = bundle;
    }
    if (best.empty()) return test::value_of(instance, placed);
    for (const std::int32_t p : best) {
      const Placement& one = placements[at(p)];
      placed[at(p)] = true;
      left[at(one.memory)] -= one.bytes;
      saved[at(one.artifact)] = std::max(saved[at(one.artifact)], one.saved_s);
    }
  }
}

TEST(PreloadPolicyTest, AdapterTakesItsBackboneAlong) {
  Instance instance = one_backbone(3, 120);
  instance.rates = {0, 1, 5, 3};  // the backbone alone is worth nothing
  PreloadPolicy policy(instance.artifacts);
  const PreloadPlan plan = policy.plan(instance.view());
  EXPECT_THAT(plan.load, ElementsAre(0, 2, 3));
  EXPECT_THAT(plan.drop, IsEmpty());
  EXPECT_DOUBLE_EQ(plan.value, 8);
}

TEST(PreloadPolicyTest, BackboneCountsForAllItsFunctionsAndIsWeighedOnce) {
  // Three functions on one backbone against one busier function of its own backbone: 3 x 5 > 12.
  Instance instance;
  instance.artifacts.num_artifacts = 2;
  instance.artifacts.num_memories = 1;
  instance.artifacts.add(0, 0, 100, 5);
  instance.artifacts.add(1, 0, 100, 4);
  instance.rates = {3, 3.5};
  instance.idle = {150};
  instance.residency.assign(2, Residency::kAbsent);
  PreloadPolicy policy(instance.artifacts);
  EXPECT_THAT(policy.plan(instance.view()).load, ElementsAre(0));
}

TEST(PreloadPolicyTest, SecondCopyAddsNothingAndABetterOneTheDifference) {
  Instance instance;
  instance.artifacts.num_artifacts = 1;
  instance.artifacts.num_memories = 3;
  instance.artifacts.add(0, 0, 10, 1);  // host
  instance.artifacts.add(0, 1, 10, 5);  // device
  instance.artifacts.add(0, 2, 10, 5);  // another device
  instance.rates = {2};
  instance.idle = {100, 100, 100};
  instance.residency.assign(3, Residency::kAbsent);
  PreloadPolicy policy(instance.artifacts);
  const PreloadPlan plan = policy.plan(instance.view());
  EXPECT_DOUBLE_EQ(plan.value, 10);
  EXPECT_THAT(plan.load, ElementsAre(1));
  instance.idle = {100, 5, 5};
  EXPECT_THAT(policy.plan(instance.view()).load, ElementsAre(0));
}

TEST(PreloadPolicyTest, InUseIsNotCountedNorMoved) {
  Instance instance = one_backbone(2, 10);
  instance.residency[0] = Residency::kInUse;
  PreloadPolicy policy(instance.artifacts);
  const PreloadPlan plan = policy.plan(instance.view());
  EXPECT_THAT(plan.load, ElementsAre(1));
  EXPECT_THAT(plan.drop, IsEmpty());
}

TEST(PreloadPolicyTest, IdlePlacementsStayWhileThereIsRoom) {
  Instance instance = one_backbone(3, 130);
  instance.rates = {3, 1, 1, 0};
  instance.residency = {Residency::kIdle, Residency::kAbsent, Residency::kIdle, Residency::kIdle};
  PreloadPolicy policy(instance.artifacts);
  PreloadPlan plan = policy.plan(instance.view());
  EXPECT_THAT(plan.load, ElementsAre(1));
  EXPECT_THAT(plan.drop, IsEmpty());  // the one without calls has room beside the others
  instance.idle = {125};
  plan = policy.plan(instance.view());
  EXPECT_THAT(plan.load, ElementsAre(1));
  EXPECT_THAT(plan.drop, ElementsAre(3));
}

TEST(PreloadPolicyTest, NearlyEqualValuesDoNotTakeTurns) {
  Instance instance = one_backbone(2, 110);
  instance.residency = {Residency::kIdle, Residency::kIdle, Residency::kAbsent};
  instance.rates = {2, 1.0, 1.05};
  PreloadPolicy policy(instance.artifacts);
  EXPECT_THAT(policy.plan(instance.view()).load, IsEmpty());
  instance.rates = {2, 1.0, 1.5};
  const PreloadPlan plan = policy.plan(instance.view());
  EXPECT_THAT(plan.load, ElementsAre(2));
  EXPECT_THAT(plan.drop, ElementsAre(1));
}

TEST(PreloadPolicyTest, NothingToPlan) {
  Instance instance;
  PreloadPolicy policy(instance.artifacts);
  EXPECT_THAT(policy.plan(instance.view()).load, IsEmpty());
  Instance full = one_backbone(2, 0);
  EXPECT_THAT(PreloadPolicy(full.artifacts).plan(full.view()).load, IsEmpty());
}

TEST(PreloadPolicyTest, DevicesChosenLateLoseNothingToASimpleGreedy) {
  double sum = 0;
  constexpr int kClusters = 40;
  for (std::uint64_t seed = 0; seed < kClusters; ++seed) {
    const Instance instance = cluster(seed);
    const PreloadPlan plan = PreloadPolicy(instance.artifacts).plan(instance.view());
    ASSERT_NO_FATAL_FAILURE(check_plan(instance, plan)) << "seed " << seed;
    const double ratio = plan.value / value_of_simple_greedy(instance);
    EXPECT_GE(ratio, 0.9) << "seed " << seed;
    sum += ratio;
  }
  EXPECT_GE(sum / kClusters, 1);
}

// An artifact whose copies need each other: a device's copy comes from a host.
TEST(PreloadPolicyTest, CopyNeedsAnotherCopyOfItsArtifact) {
  Instance instance;
  instance.artifacts.num_artifacts = 2;
  instance.artifacts.num_memories = 2;
  const std::int32_t host = instance.artifacts.add(0, 0, 10, 1);
  const std::int32_t device = instance.artifacts.add(0, 1, 10, 5, {host});
  instance.artifacts.add(1, 1, 5, 1, {device});
  instance.rates = {2, 1};
  instance.idle = {10, 15};
  instance.residency.assign(3, Residency::kAbsent);
  PreloadPolicy policy(instance.artifacts);
  EXPECT_THAT(policy.plan(instance.view()).load, ElementsAre(0, 1, 2));
  instance.idle = {5, 15};
  EXPECT_THAT(policy.plan(instance.view()).load, IsEmpty());
}

TEST(PreloadPolicyTest, RandomPlansKeepEveryRule) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Instance instance = test::random_instance(seed);
    test::load_some(instance, seed);
    PreloadPolicy policy(instance.artifacts);
    const PreloadPlan plan = policy.plan(instance.view());
    ASSERT_NO_FATAL_FAILURE(check_plan(instance, plan)) << "seed " << seed;
    const PreloadPlan again = policy.plan(instance.view());
    ASSERT_EQ(plan.load, again.load) << "seed " << seed;
    ASSERT_EQ(plan.drop, again.drop) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sluice
