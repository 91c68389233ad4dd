#include <gtest/gtest.h>

#include "gateway/hand_host.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

TEST_F(FunctionLoopsTest, AViewFollowsACallFromItsStartToItsEnd) {
  start();
  EXPECT_EQ(loops_->view(0).phase, FunctionPhase::kAbsent);
  EXPECT_FALSE(loops_->is_active(0));
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(submit(1, 0));
  FunctionView view = loops_->view(0);
  EXPECT_EQ(view.phase, FunctionPhase::kStarting);
  EXPECT_EQ(view.waiting, 1);
  EXPECT_EQ(view.calls, 1);
  EXPECT_TRUE(loops_->is_active(0));
  clock_.advance(milliseconds(40));
  HandInstance& instance = *host_.last;
  instance.now = EngineState::kReady;
  instance.used.own_bytes = 5000;
  take();
  view = loops_->view(0);
  EXPECT_EQ(view.phase, FunctionPhase::kReady);
  EXPECT_EQ(view.waiting, 0);
  EXPECT_EQ(view.running, 1);
  EXPECT_FALSE(view.ttft);
  clock_.advance(milliseconds(60));
  instance.finish(1, clock_.now());
  take();
  pass(1);
  view = loops_->view(0);
  EXPECT_EQ(view.running, 0);
  EXPECT_EQ(view.own_bytes, 5000);
  ASSERT_TRUE(view.ttft);
  EXPECT_EQ(view.ttft->p50, milliseconds(100));  // from its arrival, not from its dispatch
  EXPECT_EQ(loops_->backbone_view(0).instances, 1);
  EXPECT_TRUE(loops_->backbone_view(0).is_loaded);
  EXPECT_EQ(loops_->view(1).calls, 0);
}

TEST_F(FunctionLoopsTest, AViewHasTheAdapterThatIsInMemory) {
  start();
  EXPECT_FALSE(loops_->view(0).adapter_bytes);
  host_.adapters[0] = {true, 300, milliseconds(5)};
  host_.adapters[1] = {false, 300, milliseconds(5)};
  EXPECT_EQ(loops_->view(0).adapter_bytes, 300);
  EXPECT_FALSE(loops_->view(1).adapter_bytes);
}

TEST_F(FunctionLoopsTest, TheKvMemoryOfEachProcessIsShownAndLimited) {
  start();
  ASSERT_TRUE(submit(1, 0));
  HandInstance& first = *host_.last;
  first.memory = {.limit = 10, .held = 9, .used = 8, .running = 1, .waiting = 2};
  ASSERT_TRUE(submit(2, 1));
  HandInstance& second = *host_.last;
  second.memory = {.limit = 20};
  host_.ending_kv = 7;
  std::int64_t ending = 0;
  const auto all = loops_->kv(ending);
  EXPECT_EQ(ending, 7);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_NE(all[0].loop, all[1].loop);
  EXPECT_EQ(all[0].kv.limit, 10);
  EXPECT_EQ(all[0].kv.held, 9);
  EXPECT_EQ(all[0].kv.used, 8);
  EXPECT_EQ(all[0].kv.running, 1);
  EXPECT_EQ(all[0].kv.waiting, 2);
  loops_->limit_kv(all[1].loop, 30);
  EXPECT_EQ(first.memory.limit, 10);
  EXPECT_EQ(second.memory.limit, 30);
  // Its number is never used again, so a late limit reaches no other process.
  first.finish(1);
  take();
  ASSERT_TRUE(loops_->end_idle(0));
  ASSERT_TRUE(submit(3, 0));
  loops_->limit_kv(all[0].loop, 40);
  EXPECT_EQ(host_.last->memory.limit, 0);
}

TEST_F(FunctionLoopsTest, TheKvMemoryOfOtherMachinesIsNotDivided) {
  FunctionLoops::Options options;
  options.max_instances = 1;
  start(options);
  host_.others = {{.open = true,
                   .places = 1,
                   .free_bytes = 1000,
                   .backbones = {{.is_possible = true, .is_loaded = true}}}};
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 1));
  ASSERT_EQ(host_.started, 2);
  ASSERT_EQ(host_.last->machine, 1);
  std::int64_t ending = 0;
  EXPECT_EQ(loops_->kv(ending).size(), 1U);
}

TEST_F(FunctionLoopsTest, OnlyIdleProcessesEndByHand) {
  start();
  EXPECT_EQ(loops_->end_idle(0).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(submit(1, 0));
  take();
  EXPECT_EQ(loops_->end_idle(0).error().code, ErrorCode::kUnavailable);
  ASSERT_EQ(host_.alive.size(), 1U);
  host_.last->finish(1);
  take();
  ASSERT_TRUE(loops_->end_idle(0));
  EXPECT_TRUE(host_.alive.empty());
  ASSERT_TRUE(submit(2, 0));  // the next call starts another one
  EXPECT_EQ(host_.started, 2);
}

TEST_F(FunctionLoopsTest, APlaceThatIsGivenUpByHandGoesToAWaitingFunction) {
  FunctionLoops::Options options;
  options.max_instances = 1;
  start(options);
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(submit(1, 0));
  ASSERT_TRUE(submit(2, 1));
  EXPECT_EQ(loops_->view(1).phase, FunctionPhase::kHeld);
  loops_->cancel(1);
  take();
  static_cast<void>(loops_->end_idle(0));  // or it has made room already
  EXPECT_EQ(loops_->view(1).phase, FunctionPhase::kStarting);
}

TEST_F(FunctionLoopsTest, ABackboneThatLeftByHandComesBackWithACallOnly) {
  start();
  ASSERT_TRUE(submit(1, 0));
  take();
  EXPECT_EQ(loops_->unload_by_hand(0).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(loops_->load_by_hand(0).error().code, ErrorCode::kUnavailable);
  host_.last->finish(1);
  take();
  ASSERT_TRUE(loops_->end_idle(0));
  ASSERT_TRUE(loops_->unload_by_hand(0));
  EXPECT_EQ(host_.unloads.size(), 1U);
  EXPECT_FALSE(loops_->backbone_view(0).is_loaded);
  EXPECT_EQ(loops_->unload_by_hand(0).error().code, ErrorCode::kNotFound);
  pass(20);  // its calls would bring it back
  EXPECT_TRUE(host_.loads.empty());
  ASSERT_TRUE(submit(2, 0));
  EXPECT_EQ(host_.loads.size(), 1U);
  EXPECT_TRUE(loops_->backbone_view(0).is_loading);
}

TEST_F(FunctionLoopsTest, ABackboneIsLoadedByHand) {
  start({}, false);
  ASSERT_TRUE(loops_->load_by_hand(0));
  EXPECT_EQ(host_.loads.size(), 1U);
  loops_->backbone_loaded(0, {});
  EXPECT_TRUE(loops_->backbone_view(0).is_loaded);
  EXPECT_EQ(loops_->backbone_view(0).bytes, 1000);
}

}  // namespace
}  // namespace sluice::test
