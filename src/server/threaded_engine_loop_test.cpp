// The engine's thread on a fake executor: many threads submit, one takes results, and nothing hangs
// when something fails.
#include "server/threaded_engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_loader.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/fake_engine.h"
#include "tests/support/memory_tier.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

constexpr auto kPatience = 20s;  // longer than any test needs

Request request(RequestId id, int prompt_len, int max_tokens) {
  Request r;
  r.id = id;
  for (int i = 0; i < prompt_len; ++i) {
    r.prompt.push_back((static_cast<TokenId>(id % 40) * 7 + i * 3) % 49 + 1);
  }
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  return r;
}

struct Seen {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kNone;
  int ends = 0;
  TimePoint first_scheduled;
};
using SeenChoices = std::map<std::pair<RequestId, int>, Seen>;

// Takes the turn back after each step, and gives it when the test says so.
class HandGate final : public StepGate {
 public:
  void enter() override {
    std::unique_lock lock(mutex_);
    if (inside_) return;
    waits_ = true;
    news_.notify_all();
    news_.wait(lock, [&] { return turns_ > 0; });
    --turns_;
    waits_ = false;
    inside_ = true;
  }
  Duration longest_step() const override { return Duration::max(); }
  void leave(bool more) override {
    const std::lock_guard lock(mutex_);
    if (!inside_) return;
    inside_ = false;
    left_.push_back(more);
    news_.notify_all();
  }
  void let(int turns) {
    const std::lock_guard lock(mutex_);
    turns_ += turns;
    news_.notify_all();
  }
  bool await_waiting() {
    std::unique_lock lock(mutex_);
    return news_.wait_for(lock, kPatience, [&] { return waits_; });
  }
  // The thread told these after its steps.
  std::vector<bool> left() {
    const std::lock_guard lock(mutex_);
    return left_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  int turns_ = 0;
  bool waits_ = false;
  bool inside_ = false;
  std::vector<bool> left_;
};

class ThreadedEngineLoopTest : public testing::Test {
 protected:
  Result<std::unique_ptr<Engine>> make_engine(int good_steps) {
    return make_fake_engine(model_, clock_,
                            {.num_blocks = 2 * context_,  // eight whole contexts
                             .max_model_len = context_,
                             .good_steps = good_steps,
                             .gate = &gate_,
                             .while_committing = while_committing_});
  }

  void start(std::int32_t max_requests = 1024, int good_steps = 1 << 30) {
    make_loop(max_requests);
    loop_->start([this, good_steps] { return make_engine(good_steps); });
    await([&] { return wakes() > 0; });  // that the state has changed
    ASSERT_EQ(loop_->state(), EngineState::kReady);
  }
  void make_loop(std::int32_t max_requests) {
    loop_.emplace(
        ThreadedEngineLoop::Options{max_requests}, clock_,
        [this] {
          {
            const std::lock_guard lock(mutex_);
            ++wakes_;
          }
          woken_.notify_all();
        },
        when_idle_, step_gate_);
  }
  void TearDown() override {
    gate_.open();
    hand_gate_.let(1 << 20);
    loop_.reset();
  }

  // Waits for `done`, looking again after each wake.
  template <class Done>
  void await(Done done) {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    for (int seen = -1;;) {
      seen = wakes_;
      lock.unlock();
      if (done()) return;
      lock.lock();
      ASSERT_TRUE(woken_.wait_until(lock, until, [&] { return wakes_ != seen; }));
    }
  }
  void await_state(EngineState state) {
    await([&] { return loop_->state() == state; });
  }
  // For changes that come without a wake.
  template <class Done>
  void poll(Done done) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(done());
  }
  int wakes() {
    const std::lock_guard lock(mutex_);
    return wakes_;
  }

  // Takes one batch into `seen_`.
  void take() {
    loop_->take(batch_);
    for (const OutputEvent& event : batch_.events) {
      Seen& s = seen_[{event.request, event.choice}];
      const auto tokens = batch_.tokens_of(event);
      s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
      s.reason = event.finish_reason;
      s.ends += event.finish_reason != FinishReason::kNone;
      s.first_scheduled = event.first_scheduled;
      ended_ += event.finish_reason != FinishReason::kNone;
    }
  }
  void await_ends(int count) {
    await([&] {
      take();
      return ended_ >= count;
    });
  }
  std::vector<TokenId> expected(const Request& r, int choice = 0) const {
    const ExpectedOutput output = expected_output(model_, r, choice, 100);
    return {output.tokens.begin() + static_cast<std::ptrdiff_t>(r.prompt.size()),
            output.tokens.end()};
  }

  std::int32_t context_ = 100;
  FakeModel model_;
  SystemClock clock_;
  Gate gate_;
  std::function<void()> while_committing_;
  std::mutex mutex_;
  std::condition_variable woken_;
  int wakes_ = 0;
  OutputBatch batch_;
  SeenChoices seen_;
  int ended_ = 0;
  ThreadedEngineLoop::WhenIdle when_idle_;
  HandGate hand_gate_;
  StepGate* step_gate_ = nullptr;
  std::optional<ThreadedEngineLoop> loop_;
};

TEST_F(ThreadedEngineLoopTest, RequestsOfManyThreadsGetTheirTokens) {
  start();
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  const auto request_of = [](int thread, int i) {
    Request r = request(static_cast<RequestId>(thread * 1000 + i), 1 + i % 40, 3 + i % 7);
    r.sampling.n = 1 + i % 2;
    return r;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(loop_->submit(request_of(t, i)));
    });
  }
  int choices = 0;
  for (int i = 0; i < kEach; ++i) choices += kThreads * (1 + i % 2);
  await_ends(choices);
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kEach; ++i) {
      const Request r = request_of(t, i);
      for (int choice = 0; choice < r.sampling.n; ++choice) {
        EXPECT_EQ((seen_[{r.id, choice}].tokens), expected(r, choice)) << r.id;
        EXPECT_EQ((seen_[{r.id, choice}].ends), 1);
        EXPECT_GT((seen_[{r.id, choice}].first_scheduled), r.arrival);
      }
    }
  }
  EXPECT_EQ(loop_->unfinished_requests(), 0);
  EXPECT_EQ(batch_.gauges.kv_blocks_used, 0);
  EXPECT_EQ(batch_.gauges.running + batch_.gauges.waiting, 0);
}

TEST_F(ThreadedEngineLoopTest, EachStepWaitsForTheGateAndHasTheRequestsThatCameMeanwhile) {
  step_gate_ = &hand_gate_;
  start();
  ASSERT_TRUE(loop_->submit(request(1, 5, 3)));
  ASSERT_TRUE(hand_gate_.await_waiting());
  ASSERT_TRUE(loop_->submit(request(2, 5, 3)));
  hand_gate_.let(1);
  await([&] {
    take();
    return seen_.size() == 2;
  });
  ASSERT_TRUE(hand_gate_.await_waiting());
  EXPECT_EQ((seen_[{1, 0}].tokens.size()), 1U);
  EXPECT_EQ((seen_[{2, 0}].tokens.size()), 1U);
  EXPECT_EQ(hand_gate_.left(), std::vector<bool>{true});
  hand_gate_.let(2);
  await_ends(2);
  poll([&] { return hand_gate_.left().size() == 3; });
  EXPECT_EQ(hand_gate_.left(), (std::vector<bool>{true, true, false}));
  for (const RequestId id : {1, 2}) {
    EXPECT_EQ((seen_[{id, 0}].tokens), expected(request(id, 5, 3)));
  }
}

TEST_F(ThreadedEngineLoopTest, CancelInMidPrefillFreesTheBlocksWithinOneStep) {
  start();
  gate_.close();
  ASSERT_TRUE(loop_->submit(request(1, 90, 5)));
  ASSERT_TRUE(gate_.await_arrivals(1));
  gate_.let(2);
  ASSERT_TRUE(gate_.await_arrivals(3));  // the third chunk of 16 is in flight
  loop_->cancel(1);
  gate_.let(1);
  await_ends(1);
  EXPECT_EQ(gate_.arrived(), 3);
  EXPECT_EQ((seen_[{1, 0}].reason), FinishReason::kCancelled);
  EXPECT_TRUE((seen_[{1, 0}].tokens.empty()));
  EXPECT_EQ(batch_.gauges.kv_blocks_used, 0);
  EXPECT_EQ(loop_->unfinished_requests(), 0);
}

TEST_F(ThreadedEngineLoopTest, ARequestCancelledBeforeItIsTakenNeverRuns) {
  start();
  gate_.close();
  ASSERT_TRUE(loop_->submit(request(1, 5, 5)));
  ASSERT_TRUE(gate_.await_arrivals(1));  // from here on the thread is in a step: the inbox waits
  Request two = request(2, 5, 5);
  two.sampling.n = 2;
  ASSERT_TRUE(loop_->submit(two));
  ASSERT_TRUE(loop_->submit(request(3, 5, 5)));
  loop_->cancel(2);
  EXPECT_EQ(loop_->unfinished_requests(), 3);
  gate_.open();
  await_ends(4);
  EXPECT_FALSE(gate_.ran(2));
  for (int choice = 0; choice < 2; ++choice) {
    const Seen& s = seen_[{2, choice}];
    EXPECT_EQ(s.reason, FinishReason::kCancelled);
    EXPECT_EQ(s.ends, 1);
    EXPECT_TRUE(s.tokens.empty());
    EXPECT_EQ(s.first_scheduled, TimePoint{});
  }
  EXPECT_EQ((seen_[{3, 0}].reason), FinishReason::kLength);
  EXPECT_EQ(loop_->unfinished_requests(), 0);
}

TEST_F(ThreadedEngineLoopTest, CancelRacingSubmitEndsEachRequestOnce) {
  start();
  constexpr int kRequests = 200;
  std::thread submitter([&] {
    for (RequestId id = 1; id <= kRequests; ++id) {
      EXPECT_TRUE(loop_->submit(request(id, 30, 4)));
    }
  });
  std::thread canceller([&] {
    for (RequestId id = 1; id <= kRequests; ++id) loop_->cancel(id);
  });
  submitter.join();
  canceller.join();
  await_ends(kRequests);
  EXPECT_EQ(loop_->unfinished_requests(), 0);
  for (const auto& [choice, s] : seen_) EXPECT_EQ(s.ends, 1) << choice.first;
  EXPECT_EQ(batch_.gauges.kv_blocks_used, 0);
}

TEST_F(ThreadedEngineLoopTest, AFullInboxRefusesWithTheReasonUntilARequestEnds) {
  start(3);
  gate_.close();
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(loop_->submit(request(id, 5, 2)));
  const auto refused = loop_->submit(request(4, 5, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("3 requests are unfinished, which is the limit"));
  gate_.open();
  await_ends(1);
  EXPECT_TRUE(loop_->submit(request(5, 5, 2)));
  await_ends(4);
  EXPECT_FALSE(gate_.ran(4));
}

TEST_F(ThreadedEngineLoopTest, ARequestThatCanNeverRunComesBackRefused) {
  start();
  ASSERT_TRUE(loop_->submit(request(1, 100, 5)));
  await([&] {
    take();
    return !batch_.refused.empty();
  });
  EXPECT_EQ(batch_.refused[0].request, 1U);
  EXPECT_EQ(batch_.refused[0].error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(batch_.refused[0].error.message, HasSubstr("prompt has 100 tokens"));
  EXPECT_EQ(loop_->unfinished_requests(), 0);
}

TEST_F(ThreadedEngineLoopTest, AnEndedChoiceStopsAloneAndItsRequestGoesOn) {
  start();
  Request r = request(1, 6, 60);
  r.sampling.n = 2;
  gate_.close();
  ASSERT_TRUE(loop_->submit(r));
  gate_.let(1);
  await([&] {
    take();
    return !seen_[{1, 0}].tokens.empty();
  });
  loop_->end_choice(1, 0, FinishReason::kStop);
  loop_->end_choice(77, 0, FinishReason::kStop);  // unknown: ignored
  gate_.open();
  await_ends(2);
  EXPECT_EQ((seen_[{1, 0}].reason), FinishReason::kStop);
  EXPECT_EQ((seen_[{1, 1}].reason), FinishReason::kLength);
  EXPECT_EQ((seen_[{1, 1}].tokens), expected(r, 1));
}

TEST_F(ThreadedEngineLoopTest, AnExecutorsErrorFailsTheLoopAndNoCallerHangs) {
  start(1024, 3);
  gate_.close();
  ASSERT_TRUE(loop_->submit(request(1, 60, 20)));
  ASSERT_TRUE(gate_.await_arrivals(1));
  ASSERT_TRUE(loop_->submit(request(2, 60, 20)));
  loop_->ask_progress();
  gate_.open();
  await_state(EngineState::kFailed);
  ASSERT_TRUE(loop_->failure());
  EXPECT_THAT(loop_->failure()->message, HasSubstr("caught fire"));
  EXPECT_EQ(loop_->unfinished_requests(), 0);
  const auto refused = loop_->submit(request(3, 5, 5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("caught fire"));
  loop_->cancel(1);
  loop_->end_choice(2, 0, FinishReason::kStop);
  loop_->ask_progress();
  take();
  EXPECT_TRUE(batch_.has_progress);
  EXPECT_EQ(batch_.gauges.running + batch_.gauges.waiting + batch_.gauges.kv_blocks_used, 0);
  loop_->stop();
  EXPECT_EQ(loop_->state(), EngineState::kFailed);
}

TEST_F(ThreadedEngineLoopTest, AModelThatDoesNotLoadFailsTheLoopWithItsError) {
  make_loop(8);
  const auto early = loop_->submit(request(1, 5, 5));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(early.error().message, HasSubstr("loading"));
  loop_->start(
      []() -> Result<std::unique_ptr<Engine>> { return not_found("config.json: absent"); });
  await_state(EngineState::kFailed);
  EXPECT_EQ(loop_->failure()->code, ErrorCode::kNotFound);
  const auto refused = loop_->submit(request(2, 5, 5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("config.json: absent"));
}

TEST_F(ThreadedEngineLoopTest, AConsumerThatTakesNothingBlocksNoStep) {
  start();
  const int before = wakes();
  for (RequestId id = 1; id <= 20; ++id) ASSERT_TRUE(loop_->submit(request(id, 20, 30)));
  poll([&] { return loop_->unfinished_requests() == 0; });
  EXPECT_EQ(wakes(), before + 1);  // once, when the batch stopped being empty
  take();
  EXPECT_EQ(ended_, 20);
  for (RequestId id = 1; id <= 20; ++id) {
    EXPECT_EQ((seen_[{id, 0}].tokens), expected(request(id, 20, 30)));
  }
  std::int64_t computed = 0;
  for (const StepRecord& step : batch_.steps) computed += step.tokens;
  EXPECT_EQ(computed, batch_.gauges.totals.computed_tokens);
  EXPECT_EQ(static_cast<std::int64_t>(batch_.steps.size()), batch_.gauges.totals.steps);
  take();
  EXPECT_TRUE(batch_.events.empty() && batch_.steps.empty() && batch_.tokens.empty());
  EXPECT_EQ(batch_.gauges.totals.computed_tokens, computed);  // the state stays known
  ASSERT_TRUE(loop_->submit(request(21, 5, 1)));
  await_ends(21);
}

// Its thread wakes up while the engine commits; a commit that takes long is not waited for.
TEST_F(ThreadedEngineLoopTest, AConsumerIsWokenBeforeAStepIsCommitted) {
  if (available_cpus() < 2) GTEST_SKIP() << "on one core the consumer is woken after the commit";
  std::atomic<bool> committing = false;
  std::atomic<bool> taken = false;
  while_committing_ = [&] {
    committing = true;
    committing.notify_all();
    taken.wait(false);
  };
  start();
  const int before = wakes();
  ASSERT_TRUE(loop_->submit(request(1, 5, 1)));
  committing.wait(false);
  EXPECT_EQ(wakes(), before + 1);
  take();
  EXPECT_TRUE(batch_.events.empty() && batch_.steps.empty());
  taken = true;
  taken.notify_all();
  await_ends(1);
  poll([&] { return wakes() == before + 2; });  // results can be taken shortly before their wake
  EXPECT_EQ((seen_[{1, 0}].tokens), expected(request(1, 5, 1)));
}

TEST_F(ThreadedEngineLoopTest, StopWhileBusyReportsEverythingCancelledAndComesBack) {
  start();
  gate_.close();
  for (RequestId id = 1; id <= 20; ++id) ASSERT_TRUE(loop_->submit(request(id, 20, 70)));
  ASSERT_TRUE(gate_.await_arrivals(1));
  std::thread stopper([&] { loop_->stop(); });
  // They stay in the inbox. The gate opens once the loop takes no more, so it knows of its end.
  RequestId last = 20;
  for (;;) {
    const auto submitted = loop_->submit(request(last + 1, 20, 70));
    if (submitted) ++last;
    if (!submitted && submitted.error().code == ErrorCode::kUnavailable) break;
    std::this_thread::sleep_for(1ms);
  }
  gate_.open();
  stopper.join();
  EXPECT_LE(gate_.arrived(), 2);
  EXPECT_EQ(loop_->state(), EngineState::kStopped);
  take();
  EXPECT_EQ(seen_.size(), last);
  for (const auto& [choice, s] : seen_) {
    EXPECT_EQ(s.reason, FinishReason::kCancelled) << choice.first;
    EXPECT_EQ(s.ends, 1);
  }
  EXPECT_EQ(loop_->unfinished_requests(), 0);
  const auto refused = loop_->submit(request(last + 1, 5, 5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  loop_->stop();
}

TEST_F(ThreadedEngineLoopTest, StopBeforeStartAndWhileLoading) {
  make_loop(8);
  loop_->stop();
  EXPECT_EQ(loop_->state(), EngineState::kStopped);
  make_loop(8);
  loop_->start([this] {
    std::this_thread::sleep_for(20ms);
    return make_engine(1);
  });
  loop_->stop();
  EXPECT_EQ(loop_->state(), EngineState::kStopped);
}

TEST_F(ThreadedEngineLoopTest, PinsAreMadeShownAndEnded) {
  start();
  ASSERT_TRUE(loop_->supports_pins());
  std::vector<PinAnswer> answers;
  const auto ask = [&](PinAction action, const char* tenant) {
    static std::uint64_t ticket = 0;
    EXPECT_TRUE(loop_->ask_pins({++ticket, action, tenant, "p"}));
    answers.clear();
    await([&] {
      take();
      for (PinAnswer& answer : batch_.pin_answers) answers.push_back(std::move(answer));
      return !answers.empty();
    });
    EXPECT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers.front().ticket, ticket);
    return answers.front().pins;
  };
  EXPECT_TRUE(ask(PinAction::kList, "a").empty());
  Request r = request(1, 18, 1);
  r.block_hashes = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  r.pin = std::make_shared<const PinOrder>(PinOrder{"a", "p", "m", 3600s});  // shared by copies
  ASSERT_TRUE(loop_->submit(std::move(r)));
  std::vector<PinResult> results;
  await([&] {
    take();
    results.insert(results.end(), batch_.pins.begin(), batch_.pins.end());
    return ended_ > 0;
  });
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results.front().request, 1U);
  EXPECT_EQ(results.front().status.blocks.in_memory, 4);
  EXPECT_EQ(batch_.gauges.pins, 1);
  EXPECT_EQ(batch_.gauges.pinned_blocks, 4);
  EXPECT_EQ(ask(PinAction::kList, "a").size(), 1U);
  EXPECT_TRUE(ask(PinAction::kShow, "b").empty());
  ASSERT_EQ(ask(PinAction::kShow, "a").size(), 1U);
  EXPECT_EQ(answers.front().pins.front().id, "p");
  EXPECT_EQ(ask(PinAction::kRemove, "a").size(), 1U);
  EXPECT_TRUE(ask(PinAction::kRemove, "a").empty());
  loop_->stop();
  EXPECT_FALSE(loop_->ask_pins({99, PinAction::kList, "a", ""}));
}

TEST_F(ThreadedEngineLoopTest, ProgressTellsHowFarEachRequestIs) {
  start();
  loop_->ask_progress();  // idle: answered at once
  await([&] {
    take();
    return batch_.has_progress;
  });
  EXPECT_TRUE(batch_.progress.empty());

  gate_.close();
  ASSERT_TRUE(loop_->submit(request(1, 60, 5)));
  ASSERT_TRUE(gate_.await_arrivals(1));
  ASSERT_TRUE(loop_->submit(request(2, 7, 5)));
  loop_->ask_progress();
  gate_.let(1);
  ASSERT_TRUE(gate_.await_arrivals(2));  // the first step is over and reported
  take();
  ASSERT_TRUE(batch_.has_progress);
  ASSERT_EQ(batch_.progress.size(), 2U);
  for (const RequestProgress& p : batch_.progress) {
    EXPECT_EQ(p.prompt_tokens, p.request == 1 ? 60 : 7);
    EXPECT_EQ(p.computed_tokens, p.request == 1 ? 16 : 0);
    EXPECT_EQ(p.running, p.request == 1 ? 1 : 0);
    EXPECT_EQ(p.waiting, p.request == 1 ? 0 : 1);
    EXPECT_EQ(p.output_tokens, 0);
  }
  EXPECT_EQ(batch_.gauges.running, 1);
  EXPECT_GE(batch_.gauges.kv_blocks_used, 4);
  EXPECT_EQ(batch_.gauges.kv_blocks, 199);
  gate_.open();
  await_ends(2);
}

TEST_F(ThreadedEngineLoopTest, TheIdleHookRunsOnceAndNotBesideWork) {
  std::atomic<int> calls = 0;
  std::atomic<bool> busy = true;
  when_idle_ = [&]() -> Result<ThreadedEngineLoop::IdleWork> {
    EXPECT_FALSE(busy);
    ++calls;
    return ThreadedEngineLoop::IdleWork{};
  };
  gate_.close();
  start();
  ASSERT_TRUE(loop_->submit(request(1, 20, 3)));
  std::this_thread::sleep_for(ThreadedEngineLoop::kIdle + 100ms);
  EXPECT_EQ(calls, 0);
  busy = false;
  gate_.open();
  await_ends(1);
  poll([&] { return calls == 1; });
  ASSERT_TRUE(loop_->submit(request(2, 20, 3)));
  await_ends(2);
  std::this_thread::sleep_for(ThreadedEngineLoop::kIdle + 100ms);
  EXPECT_EQ(calls, 1);
}

// The engine's own requests run when it is idle, and clients see nothing of them.
TEST_F(ThreadedEngineLoopTest, OperatorRequestsRunWhenIdle) {
  std::atomic<int> calls = 0;
  when_idle_ = [&]() -> Result<ThreadedEngineLoop::IdleWork> {
    if (++calls > 3) return ThreadedEngineLoop::IdleWork{};
    if (calls == 3) return ThreadedEngineLoop::IdleWork{{}, std::chrono::milliseconds(20)};
    return ThreadedEngineLoop::IdleWork{
        request(kFirstOperatorId + static_cast<RequestId>(calls), 20, 1)};
  };
  start();
  poll([&] { return calls == 4; });
  ASSERT_TRUE(loop_->submit(request(1, 20, 3)));
  await_ends(1);
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_EQ(seen_.begin()->first.first, 1U);
}

TEST_F(ThreadedEngineLoopTest, WorkDueWithoutARequestWaitsForTheGate) {
  std::atomic<int> calls = 0;
  when_idle_ = [&]() -> Result<ThreadedEngineLoop::IdleWork> {
    if (++calls > 1) return ThreadedEngineLoop::IdleWork{};
    return ThreadedEngineLoop::IdleWork{request(kFirstOperatorId, 5, 2)};
  };
  step_gate_ = &hand_gate_;
  start();
  ASSERT_TRUE(hand_gate_.await_waiting());
  EXPECT_EQ(calls, 0);
  hand_gate_.let(2);
  poll([&] { return hand_gate_.left() == std::vector<bool>{true, false}; });
  EXPECT_EQ(calls, 1);
}

TEST_F(ThreadedEngineLoopTest, AnErrorWhenIdleFailsTheEngine) {
  when_idle_ = []() -> Result<ThreadedEngineLoop::IdleWork> {
    return internal_error("wrong logits");
  };
  start();
  await_state(EngineState::kFailed);
  EXPECT_EQ(loop_->failure()->message, "wrong logits");
}

TEST_F(ThreadedEngineLoopTest, AnIdleLoopSleeps) {
  start();
  ASSERT_TRUE(loop_->submit(request(1, 20, 5)));
  await_ends(1);
  const auto cpu = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  auto least = std::chrono::microseconds(1s);
  for (int i = 0; i < 20 && least >= 50ms; ++i) {  // it may come late to its sleep
    const auto before = cpu();
    std::this_thread::sleep_for(200ms);
    least = std::min<std::chrono::microseconds>(least, cpu() - before);
  }
  EXPECT_LT(least, 50ms);
}

TEST_F(ThreadedEngineLoopTest, AStepAllocatesNothingOnceTheBatchesHaveGrown) {
  context_ = 1000;
  start();
  gate_.close();
  for (RequestId id = 1; id <= 8; ++id) ASSERT_TRUE(loop_->submit(request(id, 3, 900)));
  ASSERT_TRUE(gate_.await_arrivals(1));
  std::size_t tokens = 0;
  const auto run = [&](int first, int last) {
    for (int step = first; step < last; ++step) {
      gate_.let(1);
      ASSERT_TRUE(gate_.await_arrivals(step + 1));
      loop_->take(batch_);
      tokens += batch_.tokens.size();
    }
  };
  run(1, 100);
  tokens = 0;
  const std::size_t before = allocation_count();
  run(100, 500);
  EXPECT_EQ(allocation_count() - before, 0U);
  EXPECT_EQ(tokens, 400U * 8);
}

// A burst of long prompts is taken over in parts: those that run get steps in between.
TEST_F(ThreadedEngineLoopTest, ABurstOfWorkIsTakenOverBetweenSteps) {
  start();
  gate_.close();
  Request running = request(1, 5, 60);
  ASSERT_TRUE(loop_->submit(running));
  ASSERT_TRUE(gate_.await_arrivals(1));
  constexpr int kBurst = 1000;
  for (RequestId id = 2; id < 2 + kBurst; ++id) ASSERT_TRUE(loop_->submit(request(id, 99, 1)));
  loop_->ask_progress();
  gate_.let(1);
  ASSERT_TRUE(gate_.await_arrivals(2));
  take();
  ASSERT_EQ(batch_.progress.size(), 1001U);
  gate_.let(1);
  ASSERT_TRUE(gate_.await_arrivals(3));
  take();
  // 99 tokens each: not all of the burst fits into what one step takes over.
  EXPECT_GT(batch_.gauges.waiting, kBurst / 2);
  EXPECT_LT(batch_.gauges.waiting, kBurst * 3 / 4);
  EXPECT_EQ(loop_->unfinished_requests(), kBurst + 1);
  for (RequestId id = 2; id < 2 + kBurst; ++id) loop_->cancel(id);
  gate_.open();
  await_ends(kBurst + 1);
  EXPECT_EQ((seen_[{1, 0}].tokens), expected(running));
}

// A consumer learns of blocks that a tier has stored, and that it stores none, without a request.
TEST_F(ThreadedEngineLoopTest, AConsumerHasTheGaugesOfATierAlsoWhenNothingRuns) {
  ThreadPool pool(2);
  auto device = make_cpu_device({&pool, 0, {}});
  ASSERT_TRUE(device) << device.error().message;
  EngineOptions options;
  options.max_model_len = 128;
  options.kv_cache_memory = std::int64_t{16} << 20;
  test::MemoryTier::Store store;
  store.pages.resize(64);
  store.pause = 1ms;
  KvIdentity identity;
  make_loop(64);
  loop_->start([&]() -> Result<std::unique_ptr<Engine>> {
    StartupTimeline timeline(clock_);
    ASSIGN_OR_RETURN(LoadedExecutor parts,
                     load_executor("models/demo", options, **device, pool, timeline));
    RETURN_IF_ERROR(
        add_tier(std::make_unique<test::MemoryTier>(store), TierEviction::kLeastRecent, parts));
    LoadedEngine loaded = sluice::make_engine(std::move(parts), clock_, timeline);
    identity = loaded.kv_identity;
    return std::move(loaded.engine);
  });
  await([&] { return loop_->state() != EngineState::kLoading; });
  ASSERT_EQ(loop_->state(), EngineState::kReady) << loop_->failure()->message;
  const auto run = [&](RequestId id) {
    Request r = request(id, 64, 2);
    r.block_hash_root = block_hash_root(identity);
    r.block_hashes = BlockHasher(*r.block_hash_root, identity.block_size).hash_prompt(r.prompt);
    ASSERT_TRUE(loop_->submit(std::move(r)));
    await_ends(static_cast<int>(id));
  };
  const auto await_gauges = [&](std::int32_t saved, bool accepts) {
    await([&] {
      take();
      return batch_.gauges.tier_pages_saved == saved &&
             batch_.gauges.totals.saved_blocks == saved &&
             batch_.gauges.tier_accepts_saves == accepts;
    });
  };
  run(1);
  await_gauges(4, true);
  store.takes_saves = false;
  await_gauges(4, false);
  run(2);
  // The blocks of the second request are saved as soon as the tier takes blocks again.
  store.takes_saves = true;
  await_gauges(8, true);
  loop_->stop();  // before the device goes
}

// The real thing: the demo model, eight requests at once, equal to each alone.
TEST_F(ThreadedEngineLoopTest, TheDemoModelAnswersTogetherAsAlone) {
  ThreadPool pool(2);
  auto device = make_cpu_device({&pool, 0, {}});
  ASSERT_TRUE(device) << device.error().message;
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_model_len = 128;
  options.kv_cache_memory = std::int64_t{16} << 20;
  make_loop(64);
  loop_->start([&]() -> Result<std::unique_ptr<Engine>> {
    StartupTimeline timeline(clock_);
    ASSIGN_OR_RETURN(LoadedEngine loaded,
                     load_engine("models/demo", options, **device, pool, clock_, timeline));
    return std::move(loaded.engine);
  });
  await([&] { return loop_->state() != EngineState::kLoading; });
  ASSERT_EQ(loop_->state(), EngineState::kReady) << loop_->failure()->message;
  constexpr RequestId kRequests = 8;
  const auto request_of = [](RequestId id) {
    Request r = request(id, 10 + static_cast<int>(id) * 5, 12);
    r.sampling.seed = 7;
    return r;
  };
  for (RequestId id = 1; id <= kRequests; ++id) ASSERT_TRUE(loop_->submit(request_of(id)));
  await_ends(kRequests);
  for (RequestId id = 1; id <= kRequests; ++id) {
    Request alone = request_of(id);
    alone.id = 100 + id;
    ASSERT_TRUE(loop_->submit(alone));
    await_ends(static_cast<int>(kRequests + id));
    EXPECT_EQ((seen_[{id, 0}].tokens.size()), 12U);
    EXPECT_EQ((seen_[{id, 0}].tokens), (seen_[{alone.id, 0}].tokens));
  }
  loop_->stop();  // before the device goes
}

}  // namespace
}  // namespace sluice
