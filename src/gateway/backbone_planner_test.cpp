#include "gateway/backbone_planner.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice {
namespace {

using std::chrono::seconds;

constexpr auto kAbsent = Residency::kAbsent;
constexpr auto kIdle = Residency::kIdle;
constexpr auto kInUse = Residency::kInUse;

TimePoint at(std::int64_t s) { return {seconds(s)}; }

// Three backbones of 100, 100 and 60 bytes, each with one function; a load takes 2 s.
class BackbonePlannerTest : public testing::Test {
 protected:
  BackbonePlannerTest() : planner_(at(0)) {
    for (const std::int64_t bytes : {100, 100, 60}) planner_.add_backbone({bytes, seconds(2)});
    for (std::int32_t f = 0; f < 3; ++f) planner_.add_function(f);
  }
  void call(std::int32_t function, int times, std::int64_t second) {
    for (int i = 0; i < times; ++i) planner_.called(function, at(second));
  }

  BackbonePlanner planner_;
};

using Numbers = std::vector<std::int32_t>;

TEST_F(BackbonePlannerTest, IdleBackbonesBeyondTheirMemoryLeave) {
  call(0, 9, 10);
  call(1, 2, 10);
  call(2, 3, 10);
  const std::array<Residency, 3> all = {kIdle, kIdle, kIdle};
  EXPECT_TRUE(planner_.plan(at(20), all, 260).unload.empty());
  BackbonePlan plan = planner_.plan(at(20), all, 160);
  EXPECT_EQ(plan.unload, Numbers{1}) << "least value per byte";
  EXPECT_TRUE(plan.load.empty());
  plan = planner_.plan(at(20), all, 0);
  EXPECT_EQ(plan.unload.size(), 3U);
}

TEST_F(BackbonePlannerTest, BackbonesInUseNeitherLeaveNorCount) {
  call(0, 1, 10);
  call(1, 1, 10);
  const std::array<Residency, 3> state = {kInUse, kIdle, kAbsent};
  EXPECT_TRUE(planner_.plan(at(20), state, 100).unload.empty());
  EXPECT_EQ(planner_.plan(at(20), state, 50).unload, Numbers{1});
}

TEST_F(BackbonePlannerTest, WhereThereIsRoomTheMostValuableAreLoaded) {
  call(0, 2, 10);
  call(1, 5, 10);
  const std::array<Residency, 3> none = {kAbsent, kAbsent, kAbsent};
  EXPECT_EQ(planner_.plan(at(20), none, 100).load, Numbers{1});
  EXPECT_EQ(planner_.plan(at(20), none, 1000).load.size(), 2U) << "nothing calls the third";
  EXPECT_TRUE(planner_.plan(at(20), none, 50).load.empty());
}

TEST_F(BackbonePlannerTest, AMoreValuableBackboneTakesThePlaceOfAnotherOne) {
  call(0, 1, 10);
  call(1, 50, 10);
  const std::array<Residency, 3> state = {kIdle, kAbsent, kAbsent};
  const BackbonePlan plan = planner_.plan(at(20), state, 100);
  EXPECT_EQ(plan.unload, Numbers{0});
  EXPECT_EQ(plan.load, Numbers{1});
}

TEST_F(BackbonePlannerTest, ACallMakesRoomByTheLeastValue) {
  call(0, 5, 10);
  call(2, 1, 10);
  const std::array<Residency, 3> state = {kIdle, kAbsent, kIdle};
  EXPECT_EQ(planner_.make_room(at(20), state, 50), Numbers{2});
  EXPECT_EQ(planner_.make_room(at(20), state, 150).size(), 2U);
  EXPECT_TRUE(planner_.make_room(at(20), state, 1000).empty()) << "it would not be enough";
}

}  // namespace
}  // namespace sluice
