#include "gateway/function_loops.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using std::chrono::seconds;

// An instance that the test drives by hand.
class HandInstance final : public TenantLoop {
 public:
  HandInstance(std::int32_t own_adapter, std::string owner, std::set<HandInstance*>& alive)
      : adapter(own_adapter), tenant(std::move(owner)), alive_(alive) {
    alive_.insert(this);
  }
  ~HandInstance() override { alive_.erase(this); }

  void set_tenant(const std::string& name) override { tenant = name; }
  FunctionUse use() const override { return used; }
  Status submit(Request request) override {
    EXPECT_EQ(request.adapter, adapter);
    EXPECT_EQ(request.client_key, tenant);
    requests.push_back(request.id);
    return {};
  }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  void end_choice(RequestId /*id*/, std::int32_t /*choice*/, FinishReason /*reason*/) override {}
  void ask_progress() override {}
  void take(OutputBatch& batch) override {
    batch.clear();
    std::swap(batch, pending_);
    batch.gauges.totals.steps = steps;
  }
  std::int32_t max_requests() const override { return 100; }
  EngineState state() const override { return now; }
  std::optional<Error> failure() const override { return std::nullopt; }
  std::int32_t unfinished_requests() const override {
    return static_cast<std::int32_t>(requests.size());
  }

  void finish(RequestId id) {
    ASSERT_EQ(std::erase(requests, id), 1U);
    OutputEvent event;
    event.request = id;
    event.finish_reason = FinishReason::kLength;
    event.first_token = static_cast<std::uint32_t>(pending_.tokens.size());
    event.num_tokens = 1;
    pending_.tokens.push_back(7);
    pending_.events.push_back(event);
  }

  const std::int32_t adapter;
  std::string tenant;
  std::vector<RequestId> requests;
  std::vector<RequestId> cancelled;
  EngineState now = EngineState::kReady;
  std::int64_t steps = 0;
  FunctionUse used;

 private:
  std::set<HandInstance*>& alive_;
  OutputBatch pending_;
};

class HandHost final : public InstanceHost {
 public:
  void load_backbone(std::int32_t backbone) override { loads.push_back(backbone); }
  void unload_backbone(std::int32_t backbone) override { unloads.push_back(backbone); }
  std::unique_ptr<TenantLoop> start_instance(std::int32_t /*backbone*/, std::int32_t adapter,
                                             const std::string& tenant) override {
    auto made = std::make_unique<HandInstance>(adapter, tenant, alive);
    made->now = first_state;
    last = made.get();
    ++started;
    return made;
  }
  void end_instance(std::unique_ptr<TenantLoop> instance) override { instance.reset(); }

  std::set<HandInstance*> alive;
  HandInstance* last = nullptr;
  int started = 0;
  EngineState first_state = EngineState::kReady;
  std::vector<std::int32_t> loads;
  std::int64_t free_bytes() const override { return free; }

  std::vector<std::int32_t> unloads;
  std::int64_t free = 1'000'000;
};

class CountedUsage final : public UsageSink {
 public:
  struct Function {
    std::int64_t requests = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    bool active = false;
    FunctionSample last;
    Duration turn_time{0};
  };
  void set_backbone_bytes(std::int32_t backbone, std::int64_t bytes) override {
    backbones[backbone] = bytes;
  }
  void count_request(std::int32_t function, std::int64_t prompt_tokens) override {
    ++of[function].requests;
    of[function].prompt_tokens += prompt_tokens;
  }
  void count_output(std::int32_t function, std::int64_t tokens) override {
    of[function].output_tokens += tokens;
  }
  void set_active(std::int32_t function, bool active) override {
    EXPECT_NE(of[function].active, active);
    of[function].active = active;
  }
  void sample(std::int32_t function, const FunctionSample& sample) override {
    of[function].last = sample;
    of[function].turn_time += sample.turn_time;
  }

  std::map<std::int32_t, Function> of;
  std::map<std::int32_t, std::int64_t> backbones;
};

class FunctionLoopsTest : public testing::Test {
 protected:
  // Functions "a0", "a1", ... of tenants "t0", "t1", ..., on backbone 0.
  void start(FunctionLoops::Options options = {}, bool loaded = true, int functions = 3) {
    clock_.advance(seconds(1));
    loops_.emplace(options, host_, usage_, clock_, [this] { ++wakes_; });
    loops_->add_backbone({1000, seconds(1)}, loaded);
    for (int i = 0; i < functions; ++i) {
      loops_->add_function({"t" + std::to_string(i), "a" + std::to_string(i), 0, seconds(5)});
    }
    loops_->set_ready();
  }

  Request request(RequestId id, std::int32_t function, std::int32_t adapter = -1) {
    Request made;
    made.id = id;
    made.function = function;
    made.adapter = adapter;
    made.client_key = "t" + std::to_string(function);
    made.arrival = clock_.now();
    made.sampling.n = 1;
    return made;
  }
  Status submit(RequestId id, std::int32_t function, std::int32_t adapter = -1) {
    return loops_->submit(request(id, function, adapter));
  }
  // Ticks each second.
  void pass(int count) {
    for (int i = 0; i < count; ++i) {
      clock_.advance(seconds(1));
      loops_->tick();
    }
  }
  OutputBatch take() {
    OutputBatch batch;
    loops_->take(batch);
    return batch;
  }

  ManualClock clock_;
  HandHost host_;
  CountedUsage usage_;
  std::optional<FunctionLoops> loops_;
  int wakes_ = 0;
};

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
}  // namespace sluice
