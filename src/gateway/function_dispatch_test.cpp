#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "gateway/gateway_metrics.h"
#include "gateway/hand_host.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

class FunctionDispatchTest : public FunctionLoopsTest {
 protected:
  // Prompts of 100 tokens.
  Status ask(RequestId id, std::int32_t function) {
    Request made = request(id, function);
    made.prompt.assign(100, 1);
    return loops_->submit(std::move(made));
  }
  // The function has answered enough prompts, each `took` after its dispatch.
  void teach(std::int32_t function, Duration took) {
    for (int i = 0; i < 20; ++i) {
      const RequestId id = next_++;
      ASSERT_TRUE(ask(id, function));
      HandInstance* const instance = host_.last;
      clock_.advance(took);
      instance->finish(id, clock_.now());
      take();
    }
  }

  RequestId next_ = 1000;
};

TEST_F(FunctionDispatchTest, ARequestWaitsHereUntilItsProcessIsReady) {
  start();
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(ask(1, 0));
  EXPECT_TRUE(host_.last->requests.empty());
  EXPECT_EQ(take().gauges.waiting, 1);
  EXPECT_EQ(loops_->counts().starting, 1);
  clock_.advance(milliseconds(70));
  host_.last->now = EngineState::kReady;
  EXPECT_EQ(take().gauges.waiting, 1) << "as it was when the batch was made";
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1}));
  EXPECT_EQ(loops_->counts().starting, 0);
  EXPECT_EQ(loops_->counts().ready, 1);
  EXPECT_EQ(loops_->counts().start_time, milliseconds(70));
}

TEST_F(FunctionDispatchTest, ARequestHasTheGoalOfItsFunctionAsItIsAtTheCall) {
  start();
  ASSERT_TRUE(ask(1, 0));
  EXPECT_FALSE(host_.last->last_goal);
  loops_->change_function(0, {"t0", "a0", 0, seconds(5), milliseconds(40)});
  ASSERT_TRUE(ask(2, 0));
  EXPECT_EQ(host_.last->last_goal, milliseconds(40));
}

TEST_F(FunctionDispatchTest, AStartingInstanceThatIsWaitedForKeepsItsPlace) {
  start({.max_instances = 1});
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(ask(1, 0));
  ASSERT_TRUE(ask(2, 1));
  pass(3);
  EXPECT_EQ(host_.started, 1);
  EXPECT_EQ(host_.last->tenant, "t0");
}

TEST_F(FunctionDispatchTest, AStartThatFailsRefusesItsRequestsAndTheNextCallTriesAgain) {
  start();
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(ask(1, 0));
  ASSERT_TRUE(ask(2, 0));
  host_.last->fail(unavailable("no memory"));
  const OutputBatch batch = take();
  ASSERT_EQ(batch.refused.size(), 2U);
  EXPECT_EQ(batch.refused[1].error.message, "no memory");
  EXPECT_EQ(loops_->counts().refused[static_cast<std::size_t>(GatewayRefusal::kStart)], 2);
  EXPECT_EQ(loops_->num_instances(), 0);
  EXPECT_EQ(loops_->unfinished_requests(), 0);
  host_.first_state = EngineState::kReady;
  ASSERT_TRUE(ask(3, 0));
  EXPECT_EQ(host_.started, 2);
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{3}));
}

TEST_F(FunctionDispatchTest, AnInstanceGetsAsManyRequestsAsItHasSeats) {
  start({.seats = 2});
  for (RequestId id = 1; id <= 4; ++id) ASSERT_TRUE(ask(id, 0));
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1, 2}));
  EXPECT_EQ(usage_.of[0].requests, 2) << "a call counts once it is dispatched";
  host_.last->finish(1, clock_.now());
  take();
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{2, 3}));
  EXPECT_EQ(usage_.of[0].requests, 3);
}

TEST_F(FunctionDispatchTest, AFewFunctionsOfATenantPrefillAtATimeInTheOrderOfTheirMargins) {
  clock_.advance(seconds(1));
  loops_.emplace(FunctionLoops::Options{.prefills_at_once = 2}, host_, usage_, clock_,
                 [this] { ++wakes_; });
  loops_->add_backbone({1000, seconds(1)}, true);
  for (const int slo : {3, 3, 3, 1}) {
    loops_->add_function({"one", "f", 0, seconds(5), seconds(slo)});
  }
  loops_->add_function({"other", "f", 0, seconds(5), seconds(3)});
  loops_->set_ready();
  std::vector<HandInstance*> instances;
  const auto ask_for = [&](RequestId id, std::int32_t function) {
    Request made = request(id, function);
    made.client_key = function == 4 ? "other" : "one";
    made.prompt.assign(100, 1);
    ASSERT_TRUE(loops_->submit(std::move(made)));
    instances.push_back(host_.last);
    clock_.advance(milliseconds(1));
  };
  for (std::int32_t function = 0; function < 5; ++function) {
    ask_for(static_cast<RequestId>(function + 1), function);
  }
  EXPECT_EQ(instances[0]->requests.size(), 1U);
  EXPECT_EQ(instances[1]->requests.size(), 1U);
  EXPECT_TRUE(instances[2]->requests.empty()) << "two of this tenant prefill";
  EXPECT_TRUE(instances[3]->requests.empty());
  EXPECT_EQ(instances[4]->requests.size(), 1U) << "another tenant does not wait for them";
  EXPECT_EQ(loops_->counts().prefills, 3);
  instances[0]->give_token(1, clock_.now());
  take();
  EXPECT_EQ(instances[3]->requests.size(), 1U) << "its SLO is shorter";
  EXPECT_TRUE(instances[2]->requests.empty());
  instances[1]->give_token(2, clock_.now());
  take();
  EXPECT_EQ(instances[2]->requests.size(), 1U);
}

TEST_F(FunctionDispatchTest, AFunctionAloneJoinsItsOwnBatch) {
  start({.prefills_at_once = 1});
  for (RequestId id = 1; id <= 5; ++id) ASSERT_TRUE(ask(id, 0));
  EXPECT_EQ(host_.last->requests.size(), 5U);
}

TEST_F(FunctionDispatchTest, ARequestThatWillMissItsSloIsRefused) {
  start({.seats = 1}, true, 1, seconds(1));
  teach(0, milliseconds(300));
  ASSERT_TRUE(ask(1, 0));
  ASSERT_TRUE(ask(2, 0));
  clock_.advance(milliseconds(500));
  loops_->tick();
  EXPECT_EQ(loops_->counts().refused[static_cast<std::size_t>(GatewayRefusal::kSlo)], 0);
  clock_.advance(milliseconds(300));
  loops_->tick();
  const OutputBatch batch = take();
  ASSERT_EQ(batch.refused.size(), 1U);
  EXPECT_EQ(batch.refused[0].request, 2U);
  EXPECT_EQ(batch.refused[0].error.code, ErrorCode::kResourceExhausted);
  EXPECT_NE(batch.refused[0].error.message.find("goal of 1000 ms"), std::string::npos);
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1})) << "what runs is left alone";
  EXPECT_EQ(usage_.of[0].requests, 21);
}

TEST_F(FunctionDispatchTest, TheTimeOfAStartDoesNotCount) {
  start({}, true, 1, seconds(1));
  host_.first_state = EngineState::kLoading;
  ASSERT_TRUE(ask(1, 0));
  pass(30);
  host_.last->now = EngineState::kReady;
  take();
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1}));
}

TEST_F(FunctionDispatchTest, BadTimesDoNotRefuseCallsForEver) {
  start({.seats = 2}, true, 1, seconds(1));
  teach(0, milliseconds(200));
  teach(0, seconds(5));  // a moment in which something else had the machine
  ASSERT_TRUE(ask(1, 0));
  ASSERT_TRUE(ask(2, 0));
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1, 2}));
  EXPECT_EQ(loops_->counts().refused[static_cast<std::size_t>(GatewayRefusal::kSlo)], 0);
}

TEST_F(FunctionDispatchTest, FixedBatchesAreComputedOneAfterAnother) {
  start();
  loops_->set_batching(Batching::kFixed, {2, milliseconds(500)});
  std::vector<Duration> delays;
  loops_->on_delay([&](Duration delay) { delays.push_back(delay); });
  ASSERT_TRUE(ask(1, 0));
  EXPECT_TRUE(host_.last->requests.empty());
  ASSERT_EQ(delays.size(), 1U);
  EXPECT_EQ(delays[0], milliseconds(500));
  ASSERT_TRUE(ask(2, 0));
  EXPECT_EQ(host_.last->requests.size(), 2U);  // full
  ASSERT_TRUE(ask(3, 0));
  ASSERT_TRUE(ask(4, 0));
  EXPECT_EQ(host_.last->requests.size(), 2U);
  host_.last->finish(1, clock_.now());
  take();
  EXPECT_EQ(host_.last->requests.size(), 1U);
  host_.last->finish(2, clock_.now());
  take();
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{3, 4}));
}

TEST_F(FunctionDispatchTest, FillOrExpireHoldsALoneRequestForItsSlo) {
  start({}, true, 1, seconds(1));
  std::vector<Duration> delays;
  loops_->on_delay([&](Duration delay) { delays.push_back(delay); });
  teach(0, milliseconds(300));
  EXPECT_TRUE(delays.empty());
  loops_->set_batching(Batching::kFillOrExpire);
  ASSERT_TRUE(ask(1, 0));
  EXPECT_TRUE(host_.last->requests.empty());
  ASSERT_EQ(delays.size(), 1U);
  EXPECT_NEAR(to_milliseconds(delays[0]), 690, 1);
  clock_.advance(delays[0]);
  loops_->dispatch();
  EXPECT_EQ(host_.last->requests, (std::vector<RequestId>{1}));
}

TEST(GatewayMetrics, HasEachCount) {
  GatewayCounts counts;
  counts.instances = 3;
  counts.starting = 1;
  counts.count(GatewayRefusal::kSlo);
  counts.start_time = milliseconds(1500);
  std::string text;
  write_gateway_metrics(counts, "sluice:", text);
  for (const char* line :
       {"sluice:gateway_instances{state=\"ready\"} 2\n", "sluice:gateway_start_seconds_total 1.5\n",
        "sluice:gateway_calls_refused_total{reason=\"slo\"} 1\n",
        "sluice:gateway_calls_refused_total{reason=\"start\"} 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace sluice::test
