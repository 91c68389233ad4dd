#include "serverless/preload_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
