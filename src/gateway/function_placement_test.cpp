// Where instances start when other machines run some, and what happens when these are lost.
#include <gmock/gmock.h>

#include "gateway/hand_host.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FunctionLoopsTest;
using test::HandInstance;
using testing::ElementsAre;
using testing::IsEmpty;

class FunctionPlacementTest : public FunctionLoopsTest {
 protected:
  // This machine has `here` places, another one `there`.
  void start_with(std::int32_t here, std::int32_t there, bool loaded = true) {
    host_.others = {
        {.open = true, .places = there, .backbones = {{.is_possible = true, .is_loaded = true}}}};
    FunctionLoops::Options options;
    options.max_instances = here;
    start(options, loaded);
  }
  HandInstance* started(RequestId id, std::int32_t function) {
    EXPECT_TRUE(submit(id, function));
    return host_.last;
  }
};

TEST_F(FunctionPlacementTest, InstancesSpreadOverMachines) {
  start_with(2, 2);
  EXPECT_EQ(started(1, 0)->machine, 0);
  EXPECT_EQ(started(2, 1)->machine, 1);
  EXPECT_EQ(started(3, 2)->machine, 0);
}

TEST_F(FunctionPlacementTest, ABackboneIsNotLoadedHereWhereAnotherMachineHasIt) {
  start_with(2, 1, false);
  EXPECT_EQ(started(1, 0)->machine, 1);
  EXPECT_TRUE(host_.loads.empty());
  // That machine is full now, so it is loaded here.
  ASSERT_TRUE(submit(2, 1));
  EXPECT_EQ(host_.started, 1);
  EXPECT_EQ(host_.loads.size(), 1U);
  loops_->backbone_loaded(0, {});
  EXPECT_EQ(host_.started, 2);
  EXPECT_EQ(host_.last->machine, 0);
}

TEST_F(FunctionPlacementTest, MemoryOfABackboneIsBilledOnEachMachineThatHasIt) {
  start_with(2, 1);
  loops_->machines_changed();
  EXPECT_EQ(usage_.backbones[0], 2000);
  host_.others[0].backbones = {RemoteBackbone{}};
  loops_->machines_changed();
  EXPECT_EQ(usage_.backbones[0], 1000);
}

TEST_F(FunctionPlacementTest, AnIdleInstanceMakesRoomOnItsOwnMachine) {
  start_with(1, 1);
  HandInstance* here = started(1, 0);
  HandInstance* there = started(2, 1);
  there->finish(2);
  take();
  // The idle one is on the other machine, so the third starts there.
  HandInstance* third = started(3, 2);
  EXPECT_EQ(third->machine, 1);
  EXPECT_EQ(host_.alive, (std::set<HandInstance*>{here, third}));
}

TEST_F(FunctionPlacementTest, CallsOfALostMachineEndAtOnceAndItsFunctionWaitsUntilItIsFenced) {
  start_with(1, 1);
  HandInstance* here = started(1, 0);
  HandInstance* there = started(2, 1);
  ASSERT_EQ(there->machine, 1);
  take();
  there->lose();
  host_.others[0] = {.open = false, .places = 1, .backbones = {RemoteBackbone{}}};
  loops_->machines_changed();
  const OutputBatch lost = take();
  ASSERT_EQ(lost.events.size(), 1U);
  EXPECT_EQ(lost.events[0].finish_reason, FinishReason::kError);
  // A later call of the function is held: it may still run there. However long that takes, and
  // although it is idle, it does not start a second time.
  ASSERT_TRUE(submit(3, 1));
  pass(20);
  EXPECT_EQ(host_.started, 2);
  EXPECT_TRUE(there->requests.empty());
  there->fence();
  loops_->dispatch();
  EXPECT_EQ(loops_->num_instances(), 1);
  EXPECT_EQ(host_.started, 2);  // the only place left has request 1
  here->finish(1);
  EXPECT_TRUE(take().refused.empty());
  EXPECT_EQ(host_.started, 3);
  EXPECT_EQ(host_.last->machine, 0);
  EXPECT_EQ(host_.last->requests, std::vector<RequestId>{3});
}

TEST_F(FunctionPlacementTest, AColdCallOfALostMachineStartsElsewhere) {
  start_with(2, 4);
  started(1, 0);
  host_.first_state = EngineState::kLoading;
  HandInstance* there = started(2, 1);
  ASSERT_EQ(there->machine, 1);
  there->lose();
  there->fence();
  host_.others[0] = {.open = false, .places = 4, .backbones = {RemoteBackbone{}}};
  host_.first_state = EngineState::kReady;
  loops_->machines_changed();
  EXPECT_EQ(host_.started, 3);
  EXPECT_EQ(host_.last->machine, 0);
  EXPECT_EQ(host_.last->requests, std::vector<RequestId>{2});
  EXPECT_TRUE(take().refused.empty());
}

TEST_F(FunctionPlacementTest, AMachineThatClosesLosesItsIdleInstancesAndKeepsTheOthers) {
  start_with(1, 2);
  started(1, 0);
  HandInstance* busy = started(2, 1);
  HandInstance* idle = started(3, 2);
  ASSERT_EQ(busy->machine, 1);
  ASSERT_EQ(idle->machine, 1);
  idle->finish(3);
  take();
  host_.others[0].open = false;
  pass(1);
  EXPECT_FALSE(host_.alive.contains(idle));
  EXPECT_TRUE(host_.alive.contains(busy));
  EXPECT_EQ(loops_->num_instances(), 2);
}

// ---------------------------------------------------------------- backbones of other machines

TEST_F(FunctionPlacementTest, AMachineWithoutTheBackboneLoadsItForItsInstance) {
  start_with(1, 1);
  host_.others[0].backbones = {{.is_possible = true}};
  EXPECT_EQ(started(1, 0)->machine, 0) << "it is loaded here";
  EXPECT_EQ(started(2, 1)->machine, 1) << "this machine is full";
  EXPECT_TRUE(host_.loads.empty());
}

TEST_F(FunctionPlacementTest, ABackboneWithoutRoomHereGoesToAnotherMachine) {
  start_with(4, 1);
  loops_->add_backbone({900, seconds(1)}, false);
  const std::int32_t third = loops_->add_function({"t3", "a3", 1, seconds(5)});
  host_.others[0].backbones = {{.is_possible = true}, {.is_possible = true}};
  host_.others[0].free_bytes = 1'000'000;
  EXPECT_EQ(started(1, 0)->machine, 0);
  host_.free = 100;
  EXPECT_EQ(started(2, third)->machine, 1);
  EXPECT_TRUE(host_.loads.empty() && host_.unloads.empty());
}

// ---------------------------------------------------------------- memory of other machines

class RemoteMemoryTest : public FunctionPlacementTest {
 protected:
  // The other machine has backbone 0 in use, and room for `free` bytes; 600 are needed for the
  // other backbone, which `third_` is on.
  void start_short(std::int64_t free) {
    start_with(1, 3);
    ASSERT_EQ(loops_->add_backbone({600, seconds(1)}, false), 1);
    third_ = loops_->add_function({"t3", "a3", 1, seconds(100)});
    host_.others[0].backbones = {{.is_possible = true, .is_loaded = true}, {.is_possible = true}};
    host_.others[0].free_bytes = free;
    ASSERT_EQ(started(1, 0)->machine, 0);  // this machine is full
    busy_ = started(2, 1);
    ASSERT_EQ(busy_->machine, 1);
  }

  std::int32_t third_ = 0;
  HandInstance* busy_ = nullptr;
};

TEST_F(RemoteMemoryTest, ACallWaitsWhileWhatComputesThereHasTheMemory) {
  start_short(100);
  ASSERT_TRUE(submit(3, third_));
  pass(50);
  EXPECT_EQ(host_.started, 2);
  EXPECT_TRUE(take().refused.empty());
  ASSERT_TRUE(submit(4, 2));
  EXPECT_EQ(host_.started, 3) << "calls of others do not wait behind it";
  host_.last->finish(4);
  busy_->finish(2);
  take();
  EXPECT_EQ(host_.started, 4) << "idle processes end for it";
  EXPECT_EQ(host_.last->machine, 1);
  EXPECT_EQ(host_.last->tenant, "t3");
}

TEST_F(RemoteMemoryTest, TheWaitEnds) {
  start_short(100);
  ASSERT_TRUE(submit(3, third_));
  testing::internal::CaptureStderr();
  pass(60);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("1 calls of 'a3' have waited for memory for 60 s"));
  const OutputBatch batch = take();
  ASSERT_EQ(batch.refused.size(), 1U);
  EXPECT_EQ(batch.refused[0].error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(batch.refused[0].error.message, testing::HasSubstr("has waited for memory"));
  EXPECT_EQ(host_.alive.size(), 2U);
}

TEST_F(RemoteMemoryTest, ALoadThatFindsNoRoomIsTriedAgainWhileOthersCompute) {
  start_short(1000);
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(submit(3, third_));
  ASSERT_EQ(host_.started, 3);
  host_.last->fail(resource_exhausted("no room"));
  EXPECT_TRUE(take().refused.empty());
  EXPECT_EQ(host_.started, 3) << "not at once";
  pass(1);
  EXPECT_EQ(host_.started, 4);
  host_.last->fail(unavailable("the checkpoint has changed"));
  EXPECT_EQ(take().refused.size(), 1U) << "time does not help";
}

TEST_F(RemoteMemoryTest, ALoadThatFindsNoRoomOnAnIdleMachineShowsWhatIsWrong) {
  start_short(1000);
  busy_->finish(2);
  take();
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(submit(3, third_));
  host_.last->fail(resource_exhausted("no room"));
  EXPECT_EQ(take().refused.size(), 1U);
}

TEST_F(FunctionPlacementTest, ALoadHereThatFindsNoRoomIsTriedAgainWhileOthersCompute) {
  host_.free = 1000;
  start();
  ASSERT_EQ(loops_->add_backbone({600, seconds(1)}, false), 1);
  const std::int32_t third = loops_->add_function({"t3", "a3", 1, seconds(5)});
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, third));
  EXPECT_EQ(host_.loads.size(), 1U);
  loops_->backbone_loaded(1, resource_exhausted("no room"));
  EXPECT_TRUE(take().refused.empty());
  EXPECT_EQ(host_.loads.size(), 1U) << "not at once";
  pass(1);
  EXPECT_EQ(host_.loads.size(), 2U);
  loops_->backbone_loaded(1, {});
  EXPECT_EQ(host_.started, 2);
}

TEST_F(FunctionPlacementTest, AMachineWithWarmWorkersComesFirst) {
  start_with(2, 2);
  host_.others[0].backbones[0].workers = true;
  EXPECT_EQ(started(1, 0)->machine, 1);
}

// Calls each minute: each finds no process.
class RemotePlanTest : public FunctionPlacementTest {
 protected:
  void start_called(std::int32_t here) {
    host_.bytes_of_workers = 100;
    start_with(here, 4);
    host_.others[0].free_bytes = 1'000'000;
    host_.others[0].backbones[0] = {.is_possible = true};
    for (RequestId id = 1; id <= 10; ++id) {
      ASSERT_TRUE(submit(id, 0));
      host_.last->finish(id);
      take();
      pass(60);
    }
  }
  RemoteHolding planned() const { return host_.plans.at(1).at(0); }
};

TEST_F(RemotePlanTest, ACopyIsNotLoadedWhereOneIsHereAlready) {
  start_called(2);
  EXPECT_TRUE(host_.workers[0]) << "this machine comes first";
  EXPECT_FALSE(planned().weights);
  EXPECT_FALSE(planned().workers);
}

TEST_F(RemotePlanTest, WhenThisMachineIsFullTheOtherOneIsPrepared) {
  start_called(1);
  ASSERT_TRUE(submit(20, 1));  // it goes on
  pass(1);
  EXPECT_TRUE(planned().weights);
  EXPECT_TRUE(planned().workers);
  loops_->set_preload(false);
  pass(1);
  EXPECT_FALSE(planned().weights) << "pre-loading is off, and nothing is there";
}

TEST_F(RemotePlanTest, IdleMemoryIsLimitedOnEachMachine) {
  start_called(2);
  host_.others[0].backbones[0] = {.is_possible = true, .is_loaded = true};
  pass(1);
  EXPECT_TRUE(planned().weights) << "there is room";
  loops_->set_idle_bytes(500);
  pass(1);
  EXPECT_FALSE(planned().weights);
}

TEST_F(RemotePlanTest, NothingInUseIsUnloaded) {
  start_called(1);
  ASSERT_TRUE(submit(20, 1));
  EXPECT_EQ(started(21, 2)->machine, 1);
  loops_->set_idle_bytes(0);
  // Also before the machine has said that it is loaded.
  host_.others[0].backbones[0] = {.is_possible = true};
  pass(1);
  EXPECT_TRUE(planned().weights);
  host_.others[0].backbones[0] = {.is_possible = true, .is_loaded = true};
  pass(1);
  EXPECT_TRUE(planned().weights);
  host_.last->finish(21);
  take();
  pass(10);
  EXPECT_FALSE(planned().weights);
}

TEST_F(RemotePlanTest, WorkersWithoutTheirBackboneDoNotCount) {
  start_called(2);
  host_.others[0].backbones[0] = {.is_possible = true, .workers = true, .worker_bytes = 100};
  pass(1);
  EXPECT_FALSE(planned().weights);
}

TEST_F(RemotePlanTest, CopiesOfAdaptersArePlannedWhereCallsStart) {
  host_.adapters[0] = {true, 50, milliseconds(10)};
  start_called(1);
  EXPECT_FALSE(planned().weights) << "an adapter brings no backbone";
  ASSERT_TRUE(submit(20, 1));  // it goes on, and this machine is full
  pass(1);
  EXPECT_TRUE(planned().weights);
  EXPECT_THAT(planned().adapters, IsEmpty()) << "its backbone is not there yet";
  host_.others[0].backbones[0] = {.is_possible = true, .is_loaded = true};
  pass(1);
  EXPECT_THAT(planned().adapters, ElementsAre(0));
  host_.copies[{1, 0}] = milliseconds(3);
  pass(1);
  EXPECT_THAT(planned().adapters, ElementsAre(0));
  loops_->set_idle_bytes(1000);  // the backbone's
  pass(1);
  EXPECT_TRUE(planned().weights);
  EXPECT_THAT(planned().adapters, IsEmpty());
}

TEST_F(RemotePlanTest, ACopyNeedsThisMachinesOwnOneWhichIsReadForAll) {
  host_.adapters[0] = {true, 50, milliseconds(10)};
  start_called(1);
  ASSERT_TRUE(submit(20, 1));
  host_.others[0].backbones[0] = {.is_possible = true, .is_loaded = true};
  host_.adapters[0].is_loaded = false;
  host_.loads_adapters = false;
  host_.adapter_loads = 0;
  pass(1);
  EXPECT_TRUE(planned().weights);
  EXPECT_THAT(planned().adapters, IsEmpty());
  EXPECT_EQ(host_.adapter_loads, 1) << "also while this machine is full";
  host_.loads_adapters = true;
  pass(31);
  EXPECT_EQ(host_.adapter_loads, 2);
  pass(1);
  EXPECT_THAT(planned().adapters, ElementsAre(0));
}

TEST_F(RemotePlanTest, ACopyInUseStaysInThePlan) {
  host_.adapters[2] = {true, 50, milliseconds(10)};
  start_called(1);
  ASSERT_TRUE(submit(20, 1));
  EXPECT_EQ(started(21, 2)->machine, 1);
  host_.others[0].backbones[0] = {.is_possible = true, .is_loaded = true};
  loops_->set_idle_bytes(0);
  pass(1);
  EXPECT_THAT(planned().adapters, ElementsAre(2));
}

TEST_F(RemotePlanTest, ABackboneThatDoesNotFitMakesIdleThingsLeaveFirst) {
  start_with(1, 2);
  EXPECT_EQ(loops_->add_backbone({600, seconds(1)}, false), 1);
  const std::int32_t third = loops_->add_function({"t3", "a3", 1, seconds(5)});
  host_.others[0].backbones = {{.is_possible = true, .is_loaded = true}, {.is_possible = true}};
  host_.others[0].free_bytes = 700;
  ASSERT_TRUE(submit(1, 0));  // this machine is full
  ASSERT_TRUE(submit(2, third));
  EXPECT_EQ(host_.last->machine, 1);
  EXPECT_TRUE(host_.plans.empty()) << "it fits";
  host_.last->finish(2);
  take();
  pass(8);
  host_.plans.clear();
  host_.others[0].free_bytes = 100;
  ASSERT_TRUE(submit(3, third));
  EXPECT_EQ(host_.last->machine, 1);
  ASSERT_EQ(host_.plans.count(1), 1U);
  EXPECT_FALSE(host_.plans.at(1).at(0).weights);
}

TEST_F(RemotePlanTest, ABackboneThatDoesNotFitEndsIdleInstancesThere) {
  start_with(1, 2);
  EXPECT_EQ(loops_->add_backbone({600, seconds(1)}, false), 1);
  const std::int32_t third = loops_->add_function({"t3", "a3", 1, seconds(5)});
  host_.others[0].backbones = {{.is_possible = true, .is_loaded = true}, {.is_possible = true}};
  ASSERT_TRUE(submit(1, 0));  // this machine is full
  ASSERT_TRUE(submit(2, 1));
  ASSERT_EQ(host_.last->machine, 1);
  host_.last->finish(2);
  take();
  host_.others[0].free_bytes = 100;
  ASSERT_TRUE(submit(3, third));
  EXPECT_EQ(host_.last->machine, 1);
  EXPECT_EQ(host_.alive.size(), 2U) << "the idle one has ended";
  ASSERT_EQ(host_.plans.count(1), 1U);
  EXPECT_FALSE(host_.plans.at(1).at(0).weights);
}

TEST_F(RemotePlanTest, ABackboneOnItsWayTakesItsMemoryBeforeItIsThere) {
  start_with(1, 2);
  EXPECT_EQ(loops_->add_backbone({600, seconds(1)}, false), 1);
  EXPECT_EQ(loops_->add_backbone({600, seconds(1)}, false), 2);
  const std::int32_t third = loops_->add_function({"t3", "a3", 1, seconds(5)});
  const std::int32_t fourth = loops_->add_function({"t4", "a4", 2, seconds(5)});
  host_.others[0].backbones = {
      {.is_possible = true, .is_loaded = true}, {.is_possible = true}, {.is_possible = true}};
  host_.others[0].free_bytes = 700;
  ASSERT_TRUE(submit(1, 0));  // this machine is full
  ASSERT_TRUE(submit(2, third));
  EXPECT_EQ(host_.last->machine, 1);
  EXPECT_TRUE(host_.plans.empty()) << "it fits";
  ASSERT_TRUE(submit(3, fourth));
  EXPECT_EQ(host_.last->machine, 1);
  ASSERT_EQ(host_.plans.count(1), 1U) << "two do not";
  EXPECT_FALSE(host_.plans.at(1).at(0).weights);
  EXPECT_TRUE(host_.plans.at(1).at(1).weights);
}

TEST_F(RemotePlanTest, AMachineThatTakesNothingGetsNoPlan) {
  start_called(2);
  host_.plans.clear();
  host_.others[0].open = false;
  pass(1);
  EXPECT_TRUE(host_.plans.empty());
}

}  // namespace
}  // namespace sluice
