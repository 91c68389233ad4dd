#include "gateway/function_loops.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/hand_host.h"

namespace sluice::test {
namespace {

TEST_F(FunctionLoopsTest, StartsAnInstanceByNeedAndEndsItAfterItsIdleTime) {
  start();
  EXPECT_EQ(host_.started, 0);
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 0));
  EXPECT_EQ(host_.started, 1);
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1, 2}));
  pass(60);
  EXPECT_EQ(loops_->num_instances(), 1) << "a request runs";
  host_.last->finish(1);
  host_.last->finish(2);
  EXPECT_EQ(take().events.size(), 2U);
  pass(4);
  EXPECT_EQ(loops_->num_instances(), 1);
  pass(3);
  EXPECT_EQ(loops_->num_instances(), 0);
  EXPECT_TRUE(host_.alive.empty());
  ASSERT_TRUE(submit(3, 0));
  EXPECT_EQ(host_.started, 2);
}

TEST_F(FunctionLoopsTest, ACallDuringTheIdleTimeKeepsTheInstance) {
  start();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(submit(static_cast<RequestId>(i + 1), 0));
    host_.last->finish(static_cast<RequestId>(i + 1));
    pass(4);
  }
  EXPECT_EQ(host_.started, 1);
}

TEST_F(FunctionLoopsTest, HoldsRequestsWhileTheBackboneLoads) {
  start({}, false);
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 1));
  EXPECT_EQ(host_.loads, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(host_.started, 0);
  EXPECT_EQ(loops_->unfinished_requests(), 2);
  EXPECT_EQ(take().gauges.waiting, 2);
  loops_->backbone_loaded(0, {});
  EXPECT_EQ(host_.started, 2);
}

TEST_F(FunctionLoopsTest, AnExpectedRequestFindsItsInstance) {
  start();
  host_.first_state = EngineState::kLoading;
  loops_->expect(0, -1);
  EXPECT_EQ(host_.started, 1) << "before the request is there";
  loops_->expect(0, -1);
  clock_.advance(seconds(1));
  host_.last->now = EngineState::kReady;
  ASSERT_TRUE(submit(1, 0));
  EXPECT_EQ(host_.started, 1);
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1}));
}

TEST_F(FunctionLoopsTest, AnExpectedRequestBeginsTheLoadOfItsBackbone) {
  start({}, false);
  loops_->expect(0, -1);
  loops_->expect(1, -1);
  EXPECT_EQ(host_.loads, (std::vector<std::int32_t>{0}));
  ASSERT_TRUE(submit(1, 0));
  EXPECT_EQ(host_.loads.size(), 1U);
  loops_->backbone_loaded(0, {});
  EXPECT_EQ(host_.started, 1) << "the other request has not come";
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1}));
}

TEST_F(FunctionLoopsTest, AnExpectedRequestThatNeverComesCostsTheIdleTime) {
  start();
  loops_->expect(0, -1);
  pass(4);
  EXPECT_EQ(loops_->num_instances(), 1);
  EXPECT_FALSE(usage_.of[0].active);
  pass(3);
  EXPECT_EQ(loops_->num_instances(), 0);
  EXPECT_TRUE(host_.alive.empty());
}

TEST_F(FunctionLoopsTest, AnExpectedRequestTakesNoPlaceFromAnyOther) {
  start({.max_instances = 1});
  ASSERT_TRUE(submit(1, 0));
  host_.last->finish(1);
  take();
  loops_->expect(1, -1);
  EXPECT_EQ(host_.started, 1) << "an idle instance stays until the request is there";
  ASSERT_TRUE(submit(2, 1));
  EXPECT_EQ(host_.started, 2);
  take();
  host_.last->finish(2);
  take();
  loops_->stop();
  loops_->expect(2, -1);
  EXPECT_EQ(host_.started, 2) << "nothing starts after the end";
}

TEST_F(FunctionLoopsTest, AnExpectedInstanceMakesPlaceForARequest) {
  start({.max_instances = 1});
  loops_->expect(0, -1);
  ASSERT_TRUE(submit(1, 1));
  EXPECT_EQ(host_.started, 2);
  EXPECT_EQ(loops_->num_instances(), 1);
  EXPECT_EQ(host_.last->tenant, "t1");
}

TEST_F(FunctionLoopsTest, AFailedLoadRefusesItsRequestsAndTheNextCallTriesAgain) {
  start({}, false);
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 1));
  loops_->backbone_loaded(0, unavailable("no memory"));
  const OutputBatch batch = take();
  ASSERT_EQ(batch.refused.size(), 2U);
  EXPECT_EQ(batch.refused[0].error.message, "no memory");
  EXPECT_EQ(loops_->unfinished_requests(), 0);
  ASSERT_TRUE(submit(3, 0));
  EXPECT_EQ(host_.loads.size(), 2U);
}

TEST_F(FunctionLoopsTest, TheQueueOfAColdFunctionIsBounded) {
  start({.queue_depth = 2}, false);
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 0));
  const Status third = submit(3, 0);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(third.error().message.find("'a0' is starting"), std::string::npos);
  EXPECT_TRUE(submit(4, 1)) << "another function has a queue of its own";
  host_.first_state = EngineState::kLoading;
  loops_->backbone_loaded(0, {});
  EXPECT_FALSE(submit(5, 0)) << "its process is not ready yet";
  for (HandInstance* instance : host_.alive) instance->now = EngineState::kReady;
  EXPECT_TRUE(submit(6, 0));
}

TEST_F(FunctionLoopsTest, AnIdleInstanceMakesRoomAndABusyOneDoesNot) {
  start({.max_instances = 2, .longest_wait = seconds(10)});
  ASSERT_TRUE(submit(1, 0));
  HandInstance* const first = host_.last;
  clock_.advance(std::chrono::milliseconds(1));
  ASSERT_TRUE(submit(2, 1));
  HandInstance* const second = host_.last;
  ASSERT_TRUE(submit(3, 2));
  EXPECT_EQ(host_.started, 2) << "both are busy";
  second->finish(2);
  take();
  EXPECT_EQ(host_.started, 3);
  EXPECT_EQ(host_.alive.count(first), 1U);
  EXPECT_EQ(host_.last->tenant, "t2");
}

TEST_F(FunctionLoopsTest, AWaitWithoutAPlaceEnds) {
  start({.max_instances = 1, .longest_wait = seconds(10)});
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 1));
  pass(9);
  EXPECT_TRUE(take().refused.empty());
  pass(1);
  const OutputBatch batch = take();
  ASSERT_EQ(batch.refused.size(), 1U);
  EXPECT_EQ(batch.refused[0].request, 2U);
  EXPECT_EQ(batch.refused[0].error.code, ErrorCode::kResourceExhausted);
  EXPECT_NE(batch.refused[0].error.message.find("--max-functions"), std::string::npos);
}

TEST_F(FunctionLoopsTest, PlacesGoToTheOldestRequest) {
  start({.max_instances = 1});
  ASSERT_TRUE(submit(1, 0));
  HandInstance* const first = host_.last;
  clock_.advance(seconds(1));
  ASSERT_TRUE(submit(2, 2));
  clock_.advance(seconds(1));
  ASSERT_TRUE(submit(3, 1));
  first->finish(1);
  take();
  EXPECT_EQ(host_.last->tenant, "t2");
}

TEST_F(FunctionLoopsTest, ACancelledRequestThatWaitsIsReported) {
  start({}, false);
  ASSERT_TRUE(submit(1, 0));
  loops_->cancel(1);
  const OutputBatch batch = take();
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(batch.events[0].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(loops_->unfinished_requests(), 0);
  loops_->backbone_loaded(0, {});
  EXPECT_EQ(host_.started, 0);
}

TEST_F(FunctionLoopsTest, OtherContentOfAnAdapterGetsAnotherInstance) {
  start();
  ASSERT_TRUE(submit(1, 0, 4));
  HandInstance* const before = host_.last;
  ASSERT_TRUE(submit(2, 0, 5));
  EXPECT_EQ(loops_->num_instances(), 2);
  EXPECT_EQ(before->requests.size(), 1U) << "running requests are left alone";
  before->finish(1);
  pass(1);
  EXPECT_EQ(loops_->num_instances(), 1);
  EXPECT_EQ(host_.alive.count(before), 0U);
}

TEST_F(FunctionLoopsTest, AFailedInstanceIsReplacedAtTheNextCall) {
  start();
  ASSERT_TRUE(submit(1, 0));
  host_.last->finish(1);
  host_.last->now = EngineState::kFailed;
  ASSERT_TRUE(submit(2, 0));
  EXPECT_EQ(host_.started, 2);
  pass(1);
  EXPECT_EQ(loops_->num_instances(), 1);
}

TEST_F(FunctionLoopsTest, TotalsDoNotFallWhenAnInstanceEnds) {
  start();
  ASSERT_TRUE(submit(1, 0));
  host_.last->steps = 7;
  host_.last->finish(1);
  EXPECT_EQ(take().gauges.totals.steps, 7);
  pass(10);
  EXPECT_EQ(loops_->num_instances(), 0);
  EXPECT_EQ(take().gauges.totals.steps, 7);
  ASSERT_TRUE(submit(2, 0));
  host_.last->steps = 2;
  EXPECT_EQ(take().gauges.totals.steps, 9);
}

TEST_F(FunctionLoopsTest, StopEndsInstancesAndRefusesWhatWaits) {
  start({.max_instances = 1});
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 1));
  loops_->stop();
  EXPECT_TRUE(host_.alive.empty());
  EXPECT_EQ(take().refused.size(), 1U);
  EXPECT_FALSE(submit(3, 0));
  EXPECT_EQ(loops_->state(), EngineState::kStopped);
}

TEST_F(FunctionLoopsTest, ReportsWhatFunctionsUse) {
  start();
  Request first = request(1, 0);
  first.prompt = {1, 2, 3};
  ASSERT_TRUE(loops_->submit(std::move(first)));
  EXPECT_TRUE(usage_.of[0].active);
  EXPECT_TRUE(usage_.of[0].last.live);
  host_.last->used = {seconds(2), 4096};
  pass(1);
  EXPECT_EQ(usage_.of[0].last.own_bytes, 4096);
  host_.last->used.turn_time = seconds(3);
  host_.last->finish(1);
  take();
  EXPECT_FALSE(usage_.of[0].active);
  pass(10);
  EXPECT_FALSE(usage_.of[0].last.live);
  EXPECT_EQ(usage_.of[0].last.own_bytes, 0);
  EXPECT_EQ(usage_.of[0].turn_time, Duration(seconds(3))) << "also of the last second";
  EXPECT_EQ(usage_.of[0].requests, 1);
  EXPECT_EQ(usage_.of[0].prompt_tokens, 3);
  EXPECT_EQ(usage_.of[0].output_tokens, 1);
  EXPECT_EQ(usage_.of.count(1), 0U);
}

TEST_F(FunctionLoopsTest, AnIdleBackboneBeyondItsMemoryIsUnloadedAndLoadedByNeed) {
  start();
  loops_->set_idle_bytes(500);
  ASSERT_TRUE(submit(1, 0));
  pass(1);
  EXPECT_TRUE(host_.unloads.empty()) << "it is in use";
  host_.last->finish(1);
  take();
  pass(10);
  EXPECT_EQ(host_.unloads, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(usage_.backbones[0], 0);
  ASSERT_TRUE(submit(2, 0));
  EXPECT_EQ(host_.loads, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(host_.started, 1);
  loops_->backbone_loaded(0, {});
  EXPECT_EQ(host_.started, 2);
  EXPECT_EQ(usage_.backbones[0], 1000);
}

TEST_F(FunctionLoopsTest, WithoutPreloadingOnlyACallLoads) {
  start({}, false);
  loops_->set_idle_bytes(1500);
  loops_->set_preload(false);
  ASSERT_TRUE(submit(1, 0));
  loops_->cancel(1);
  loops_->backbone_loaded(0, unavailable("no memory"));
  pass(40);
  EXPECT_EQ(host_.loads.size(), 1U);
  ASSERT_TRUE(submit(2, 0));
  EXPECT_EQ(host_.loads.size(), 2U);
}

TEST_F(FunctionLoopsTest, ABackboneThatIsCalledOftenIsLoadedWhereThereIsRoom) {
  start({}, false);
  loops_->set_idle_bytes(1500);
  ASSERT_TRUE(submit(1, 0));
  loops_->cancel(1);
  loops_->backbone_loaded(0, unavailable("no memory"));
  pass(29);
  EXPECT_EQ(host_.loads.size(), 1U) << "not again and again";
  pass(1);
  EXPECT_EQ(host_.loads.size(), 2U) << "before the next call";
  loops_->backbone_loaded(0, {});
  pass(20);
  EXPECT_TRUE(host_.unloads.empty());
  ASSERT_TRUE(submit(2, 0));
  EXPECT_EQ(host_.started, 1) << "at once";
}

TEST_F(FunctionLoopsTest, ACallMakesRoomForItsBackbone) {
  start();
  loops_->add_backbone({900, seconds(1)}, false);
  loops_->add_function({"t3", "a3", 1, seconds(5)});
  host_.free = 100;
  ASSERT_TRUE(submit(1, 3));
  EXPECT_EQ(host_.unloads, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(host_.loads, (std::vector<std::int32_t>{1}));
}

TEST_F(FunctionLoopsTest, ACallEndsIdleInstancesWhoseBackboneMustLeave) {
  start({.longest_wait = seconds(10)});
  loops_->add_backbone({900, seconds(1)}, false);
  loops_->add_function({"t3", "a3", 1, seconds(5)});
  ASSERT_TRUE(submit(1, 0));
  HandInstance* const busy = host_.last;
  ASSERT_TRUE(submit(2, 1));
  host_.last->finish(2);
  host_.free = 100;
  ASSERT_TRUE(submit(3, 3));
  EXPECT_TRUE(host_.loads.empty()) << "its memory is in use";
  EXPECT_EQ(host_.alive.size(), 2U) << "the idle one alone frees too little";
  ASSERT_TRUE(submit(4, 1));
  EXPECT_EQ(host_.last->requests.size(), 1U) << "others do not wait behind it";
  host_.last->finish(4);
  pass(2);
  EXPECT_TRUE(host_.loads.empty());
  busy->finish(1);
  take();
  EXPECT_EQ(host_.alive.size(), 0U);
  EXPECT_EQ(host_.unloads, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(host_.loads, (std::vector<std::int32_t>{1}));
  loops_->backbone_loaded(1, {});
  EXPECT_EQ(host_.last->tenant, "t3");
  EXPECT_EQ(host_.last->requests.size(), 1U);
}

TEST_F(FunctionLoopsTest, AWaitForMemoryEnds) {
  start({.longest_wait = seconds(10)});
  loops_->add_backbone({900, seconds(1)}, false);
  loops_->add_function({"t3", "a3", 1, seconds(5)});
  ASSERT_TRUE(submit(1, 0));
  host_.free = 100;
  ASSERT_TRUE(submit(2, 3));
  pass(10);
  const OutputBatch batch = take();
  ASSERT_EQ(batch.refused.size(), 1U);
  EXPECT_EQ(batch.refused[0].error.code, ErrorCode::kResourceExhausted);
  EXPECT_NE(batch.refused[0].error.message.find("memory"), std::string::npos);
  EXPECT_TRUE(host_.unloads.empty());
  EXPECT_EQ(host_.alive.size(), 1U);
}

TEST_F(FunctionLoopsTest, ABackboneForWhichNothingCanLeaveIsTriedSoThatItsErrorShows) {
  start();
  loops_->add_backbone({9000, seconds(1)}, false);
  loops_->add_function({"t3", "a3", 1, seconds(5)});
  ASSERT_TRUE(submit(1, 0));
  host_.last->finish(1);
  take();
  host_.free = 100;
  ASSERT_TRUE(submit(2, 3));
  EXPECT_EQ(host_.loads, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(host_.alive.size(), 1U) << "it would not help";
}

TEST_F(FunctionLoopsTest, WarmWorkersWaitOnABackboneThatIsCalledAndLeaveWithIt) {
  start();
  loops_->set_idle_bytes(1100);
  host_.bytes_of_workers = 100;
  pass(1);
  EXPECT_FALSE(host_.workers[0]) << "nothing has called it";
  ASSERT_TRUE(submit(1, 0));
  host_.last->finish(1);
  take();
  pass(1);
  EXPECT_TRUE(host_.workers[0]);
  EXPECT_EQ(loops_->counts().backbones_warm, 1);
  EXPECT_EQ(loops_->counts().warm, 1) << "this instance was ready at once";
  loops_->set_idle_bytes(1099);
  pass(10);
  EXPECT_FALSE(host_.workers[0]) << "no room for both";
  EXPECT_TRUE(host_.unloads.empty());
  loops_->set_idle_bytes(1100);
  pass(1);
  EXPECT_TRUE(host_.workers[0]);
  loops_->set_idle_bytes(0);
  pass(1);
  EXPECT_EQ(host_.unloads, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(loops_->counts().backbones_warm, 0);
}

TEST_F(FunctionLoopsTest, AdaptersThatNoFunctionUsesLeaveAndComeBackBeforeTheirCall) {
  start();
  host_.adapters[0] = {true, 50, seconds(1)};
  loops_->set_idle_bytes(1000);
  ASSERT_TRUE(submit(1, 0));
  pass(2);
  EXPECT_TRUE(host_.adapters[0].is_loaded) << "its function has a process";
  host_.last->finish(1);
  take();
  pass(10);
  EXPECT_FALSE(host_.adapters[0].is_loaded) << "the backbone takes all idle memory";
  host_.loads_adapters = false;
  loops_->set_idle_bytes(1050);
  pass(20);
  EXPECT_EQ(host_.adapter_loads, 1) << "a load that fails is not tried again and again";
  host_.loads_adapters = true;
  pass(20);
  EXPECT_EQ(host_.adapter_loads, 2);
  EXPECT_TRUE(host_.adapters[0].is_loaded);
}

TEST_F(FunctionLoopsTest, AChangedIdleTimeHoldsFromNowOn) {
  start();
  ASSERT_TRUE(submit(1, 0));
  host_.last->finish(1);
  loops_->change_function(0, {"t0", "a0", 0, seconds(30)});
  pass(15);
  EXPECT_EQ(loops_->num_instances(), 1);
  pass(20);
  EXPECT_EQ(loops_->num_instances(), 0);
}

}  // namespace
}  // namespace sluice::test
