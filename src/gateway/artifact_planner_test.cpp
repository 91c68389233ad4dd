#include "gateway/artifact_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace sluice {
namespace {

using std::chrono::seconds;

constexpr auto kAbsent = Residency::kAbsent;
constexpr auto kIdle = Residency::kIdle;
constexpr auto kInUse = Residency::kInUse;

TimePoint at(std::int64_t s) { return {seconds(s)}; }

// Three backbones of 100, 100 and 60 bytes, each with one function; a load takes 2 s.
class ArtifactPlannerTest : public testing::Test {
 protected:
  ArtifactPlannerTest() : planner_(at(0)) {
    for (const std::int64_t bytes : {100, 100, 60}) planner_.add_backbone({bytes, seconds(2)});
    for (std::int32_t f = 0; f < 3; ++f) planner_.add_function(f, seconds(5));
  }
  void call(std::int32_t function, int times, std::int64_t second) {
    for (int i = 0; i < times; ++i) planner_.called(function, at(second));
  }

  static ArtifactState backbones(std::vector<Residency> states) {
    ArtifactState state;
    state.backbones = std::move(states);
    return state;
  }

  ArtifactPlanner planner_;
};

using Numbers = std::vector<std::int32_t>;

TEST_F(ArtifactPlannerTest, IdleBackbonesBeyondTheirMemoryLeave) {
  call(0, 9, 10);
  call(1, 2, 10);
  call(2, 3, 10);
  const ArtifactState all = backbones({kIdle, kIdle, kIdle});
  EXPECT_TRUE(planner_.plan(at(20), all, 260).unload.backbones.empty());
  ArtifactPlan plan = planner_.plan(at(20), all, 160);
  EXPECT_EQ(plan.unload.backbones, Numbers{1}) << "least value per byte";
  EXPECT_TRUE(plan.load.backbones.empty());
  plan = planner_.plan(at(20), all, 0);
  EXPECT_EQ(plan.unload.backbones.size(), 3U);
}

TEST_F(ArtifactPlannerTest, BackbonesInUseNeitherLeaveNorCount) {
  call(0, 1, 10);
  call(1, 1, 10);
  const ArtifactState state = backbones({kInUse, kIdle, kAbsent});
  EXPECT_TRUE(planner_.plan(at(20), state, 100).unload.backbones.empty());
  EXPECT_EQ(planner_.plan(at(20), state, 50).unload.backbones, Numbers{1});
}

TEST_F(ArtifactPlannerTest, WhereThereIsRoomTheMostValuableAreLoaded) {
  call(0, 2, 10);
  call(1, 5, 10);
  const ArtifactState none = backbones({kAbsent, kAbsent, kAbsent});
  EXPECT_EQ(planner_.plan(at(20), none, 100).load.backbones, Numbers{1});
  EXPECT_EQ(planner_.plan(at(20), none, 1000).load.backbones.size(), 2U)
      << "nothing calls the third";
  EXPECT_TRUE(planner_.plan(at(20), none, 50).load.backbones.empty());
}

TEST_F(ArtifactPlannerTest, AMoreValuableBackboneTakesThePlaceOfAnotherOne) {
  call(0, 1, 10);
  call(1, 50, 10);
  const ArtifactState state = backbones({kIdle, kAbsent, kAbsent});
  const ArtifactPlan plan = planner_.plan(at(20), state, 100);
  EXPECT_EQ(plan.unload.backbones, Numbers{0});
  EXPECT_EQ(plan.load.backbones, Numbers{1});
}

TEST_F(ArtifactPlannerTest, ACallMakesRoomByTheLeastValue) {
  call(0, 5, 10);
  call(2, 1, 10);
  const ArtifactState state = backbones({kIdle, kAbsent, kIdle});
  EXPECT_EQ(planner_.make_room(at(20), state, 50)->backbones, Numbers{2});
  EXPECT_EQ(planner_.make_room(at(20), state, 150)->backbones.size(), 2U);
  EXPECT_FALSE(planner_.make_room(at(20), state, 1000)) << "it would not be enough";
}

TEST_F(ArtifactPlannerTest, ABackboneTakesItsIdleProcessesAlong) {
  call(0, 5, 10);
  call(1, 1, 10);
  ArtifactState state = backbones({kIdle, kInUse, kAbsent});
  // Function 2 was never called: its process was started for a call that did not come.
  state.instances = {{0, {10, std::chrono::milliseconds(20)}}, {1, {10, seconds(1)}}};
  auto room = planner_.make_room(at(20), state, 10);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->instances, Numbers{0});
  EXPECT_TRUE(room->backbones.empty()) << "a process is enough";
  room = planner_.make_room(at(20), state, 110);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->backbones, Numbers{0});
  EXPECT_EQ(room->instances, Numbers{0});
  EXPECT_FALSE(planner_.make_room(at(20), state, 200)) << "the other backbone is in use";
  state.backbones[2] = kIdle;
  state.instances[2] = {5, seconds(1)};
  room = planner_.make_room(at(20), state, 65);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->backbones, Numbers{2});
  EXPECT_EQ(room->instances, Numbers{2});
}

// Workers of 20 bytes on each backbone; a start takes 100 ms.
ArtifactState with_workers(ArtifactState state, std::vector<bool> workers) {
  state.worker_uses.assign(3, {20, std::chrono::milliseconds(100)});
  state.workers = std::move(workers);
  return state;
}

TEST_F(ArtifactPlannerTest, WorkersWaitWhereCallsFindNoProcess) {
  // Function 0 is called each second, so its process lives; function 2 each minute.
  for (int i = 0; i < 1200; ++i) call(0, 1, i);
  for (int i = 0; i < 20; ++i) call(2, 1, 60L * i + 30);
  const ArtifactState state = with_workers(backbones({kInUse, kAbsent, kIdle}), {0, 0, 0});
  const ArtifactPlan plan = planner_.plan(at(1200), state, 80);
  EXPECT_EQ(plan.load.workers, Numbers{2});
  EXPECT_TRUE(plan.load.backbones.empty() && plan.unload.backbones.empty());
  EXPECT_TRUE(planner_.plan(at(1200), state, 79).load.workers.empty()) << "no room beside";
}

TEST_F(ArtifactPlannerTest, ABackboneTakesItsWorkersAlong) {
  call(0, 3, 10);
  call(2, 1, 10);
  const ArtifactState state = with_workers(backbones({kIdle, kAbsent, kIdle}), {1, 0, 1});
  const ArtifactPlan plan = planner_.plan(at(20), state, 120);
  EXPECT_EQ(plan.unload.backbones, Numbers{2});
  EXPECT_EQ(plan.unload.workers, Numbers{2});
  const auto room = planner_.make_room(at(20), state, 20);
  ASSERT_TRUE(room);
  EXPECT_TRUE(room->backbones.empty());
  EXPECT_EQ(room->workers.size(), 1U) << "a worker saves less for each byte than its backbone";
}

TEST_F(ArtifactPlannerTest, AdaptersAreWeighedBesideBackbones) {
  call(0, 4, 10);
  call(1, 1, 10);
  ArtifactState state = backbones({kInUse, kInUse, kAbsent});
  state.adapters[0] = {{30, std::chrono::milliseconds(50)}, kAbsent};
  state.adapters[1] = {{30, std::chrono::milliseconds(50)}, kAbsent};
  EXPECT_EQ(planner_.plan(at(20), state, 30).load.adapters, Numbers{0});
  EXPECT_EQ(planner_.plan(at(20), state, 60).load.adapters.size(), 2U);
  state.adapters[0].residency = kInUse;
  state.adapters[1].residency = kIdle;
  EXPECT_EQ(planner_.idle_bytes(state), 30);
  EXPECT_EQ(planner_.plan(at(20), state, 0).unload.adapters, Numbers{1});
}

// ---------------------------------------------------------------- several machines

TEST_F(ArtifactPlannerTest, AnArtifactWithoutRoomOnOneMachineGoesToAnotherOne) {
  call(0, 9, 10);
  call(1, 5, 10);
  const ArtifactState none = backbones({kAbsent, kAbsent, kAbsent});
  const std::vector<MachineArtifacts> machines = {{none, 100}, {none, 150}};
  const auto plans = planner_.plan(at(20), machines);
  ASSERT_EQ(plans.size(), 2U);
  Numbers all = plans[0].load.backbones;
  all.insert(all.end(), plans[1].load.backbones.begin(), plans[1].load.backbones.end());
  EXPECT_THAT(all, testing::UnorderedElementsAre(0, 1)) << "each once";
  EXPECT_EQ(plans[0].load.backbones.size(), 1U);
}

TEST_F(ArtifactPlannerTest, ASecondCopyIsNotLoadedAndStaysWhereThereIsRoom) {
  call(0, 9, 10);
  const ArtifactState none = backbones({kAbsent, kAbsent, kAbsent});
  const ArtifactState first = backbones({kIdle, kAbsent, kAbsent});
  std::vector<MachineArtifacts> machines = {{first, 300}, {none, 300}};
  EXPECT_TRUE(planner_.plan(at(20), machines)[1].load.backbones.empty());
  machines[1].state = first;
  EXPECT_TRUE(planner_.plan(at(20), machines)[1].unload.backbones.empty());
  call(1, 1, 10);
  machines[0].idle_bytes = machines[1].idle_bytes = 100;
  const auto plans = planner_.plan(at(20), machines);
  EXPECT_EQ(plans[0].unload.backbones.size() + plans[1].unload.backbones.size(), 1U)
      << "the second copy makes room for the other backbone";
}

TEST_F(ArtifactPlannerTest, MachinesWithoutAPlaceOrTheModelLoadNothing) {
  call(0, 9, 10);
  const ArtifactState none = backbones({kAbsent, kAbsent, kAbsent});
  std::vector<MachineArtifacts> machines = {{none, 300}, {none, 300}};
  machines[0].takes = false;
  EXPECT_EQ(planner_.plan(at(20), machines)[1].load.backbones, Numbers{0});
  machines[1].state.possible = {false, true, true};
  auto plans = planner_.plan(at(20), machines);
  EXPECT_TRUE(plans[0].load.backbones.empty() && plans[1].load.backbones.empty());
  machines[1].takes = false;
  plans = planner_.plan(at(20), machines);
  EXPECT_EQ(plans[0].load.backbones, Numbers{0}) << "none has a place";
}

}  // namespace
}  // namespace sluice
