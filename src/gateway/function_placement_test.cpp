// Where instances start when other machines run some, and what happens when these are lost.
#include "gateway/hand_host.h"

namespace sluice {
namespace {

using test::FunctionLoopsTest;
using test::HandInstance;

class FunctionPlacementTest : public FunctionLoopsTest {
 protected:
  // This machine has `here` places, another one `there`.
  void start_with(std::int32_t here, std::int32_t there, bool loaded = true) {
    host_.others = {{.open = true, .places = there, .backbones = {true}}};
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
  host_.others[0].backbones = {false};
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
  host_.others[0] = {.open = false, .places = 1, .backbones = {false}};
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
  host_.others[0] = {.open = false, .places = 4, .backbones = {false}};
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

}  // namespace
}  // namespace sluice
