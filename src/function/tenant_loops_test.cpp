#include "function/tenant_loops.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sluice {
namespace {

// A tenant's loop that the test drives by hand.
class HandLoop final : public TenantLoop {
 public:
  struct Shared {
    std::mutex mutex;
    std::map<int, HandLoop*> alive;  // by the order in which they were made
    int made = 0;
  };

  HandLoop(Shared& shared, std::int32_t adapter, std::function<void()> wake)
      : shared_(shared), adapter_(adapter), wake_(std::move(wake)) {
    const std::lock_guard lock(shared_.mutex);
    number_ = shared_.made++;
    shared_.alive[number_] = this;
  }
  ~HandLoop() override {
    const std::lock_guard lock(shared_.mutex);
    shared_.alive.erase(number_);
  }

  void set_tenant(const std::string& tenant) override {
    const std::lock_guard lock(mutex_);
    tenant_ = tenant;
  }
  FunctionUse use() const override { return {}; }
  void limit_kv(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    kv_.limit = bytes;
  }
  FunctionKv kv() const override {
    const std::lock_guard lock(mutex_);
    return kv_;
  }
  Status submit(Request request) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(tenant_.empty() || tenant_ == request.client_key) << tenant_;
    EXPECT_EQ(request.adapter, adapter_);
    unfinished_.insert(request.id);
    return {};
  }
  void cancel(RequestId /*id*/) override {}
  void end_choice(RequestId /*id*/, std::int32_t /*choice*/, FinishReason /*reason*/) override {}
  void ask_progress() override {
    const std::lock_guard lock(mutex_);
    pending_.has_progress = true;
    for (const RequestId id : unfinished_) {
      RequestProgress progress;
      progress.request = id;
      pending_.progress.push_back(progress);
    }
  }
  void take(OutputBatch& batch) override {
    const std::lock_guard lock(mutex_);
    batch.clear();
    ++takes_;
    std::swap(batch, pending_);
    batch.gauges.totals.steps = steps_;
    batch.gauges.running = static_cast<std::int32_t>(unfinished_.size());
  }
  std::int32_t max_requests() const override { return 100; }
  EngineState state() const override { return EngineState::kReady; }
  std::optional<Error> failure() const override { return std::nullopt; }
  std::int32_t unfinished_requests() const override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int32_t>(unfinished_.size());
  }

  // The request's only token; `steps` are the totals from now on.
  void finish(RequestId id, TokenId token, std::int64_t steps) {
    const std::lock_guard lock(mutex_);
    unfinished_.erase(id);
    steps_ = steps;
    OutputEvent event;
    event.request = id;
    event.finish_reason = FinishReason::kLength;
    event.first_token = static_cast<std::uint32_t>(pending_.tokens.size());
    event.num_tokens = 1;
    pending_.events.push_back(event);
    pending_.tokens.push_back(token);
  }
  void hold_kv(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    kv_.held = bytes;
  }
  int takes() const {
    const std::lock_guard lock(mutex_);
    return takes_;
  }
  void set_steps(std::int64_t steps) {
    const std::lock_guard lock(mutex_);
    steps_ = steps;
  }

 private:
  Shared& shared_;
  const std::int32_t adapter_;
  std::function<void()> wake_;
  int number_ = 0;
  mutable std::mutex mutex_;  // the thread of TenantLoops looks at it too
  std::string tenant_ = "none yet";
  std::set<RequestId> unfinished_;
  OutputBatch pending_;
  std::int64_t steps_ = 0;
  int takes_ = 0;
  FunctionKv kv_;
};

class TenantLoopsTest : public testing::Test {
 protected:
  void start(TenantLoops::Options options) {
    loops_.emplace(options, clock_, [] {});
    loops_->start([this]() -> Result<TenantLoops::MakeLoop> {
      return TenantLoops::MakeLoop([this](std::int32_t adapter, std::function<void()> wake) {
        return std::make_unique<HandLoop>(shared_, adapter, std::move(wake));
      });
    });
    await([this] { return loops_->state() != EngineState::kLoading; });
  }

  template <class Done>
  static void await(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Status submit(RequestId id, const std::string& key, std::int32_t adapter = -1) {
    Request request;
    request.id = id;
    request.client_key = key;
    request.adapter = adapter;
    return loops_->submit(std::move(request));
  }
  HandLoop& loop(int number) {
    const std::lock_guard lock(shared_.mutex);
    return *shared_.alive.at(number);
  }
  std::size_t alive() {
    const std::lock_guard lock(shared_.mutex);
    return shared_.alive.size();
  }
  OutputBatch take() {
    OutputBatch batch;
    loops_->take(batch);
    return batch;
  }

  ManualClock clock_;
  HandLoop::Shared shared_;
  std::optional<TenantLoops> loops_;
};

TenantLoops::Options by_key() {
  TenantLoops::Options options;
  options.by_key = true;
  options.max_loops = 2;
  return options;
}

TEST_F(TenantLoopsTest, EachKeyHasItsLoopAndTheBatchesComeAsOne) {
  start(by_key());
  ASSERT_TRUE(submit(1, "alice") && submit(2, "bob") && submit(3, "alice"));
  EXPECT_EQ(alive(), 2U);
  EXPECT_EQ(loop(0).takes(), 1);  // a loop that has woken before would stay silent
  EXPECT_EQ(loop(0).unfinished_requests(), 2);
  EXPECT_EQ(loops_->unfinished_requests(), 3);
  loop(0).finish(3, 30, 5);
  loop(1).finish(2, 20, 4);
  const OutputBatch batch = take();
  ASSERT_EQ(batch.events.size(), 2U);
  EXPECT_EQ(batch.tokens_of(batch.events[0])[0], 30);
  EXPECT_EQ(batch.events[1].request, 2U);
  EXPECT_EQ(batch.tokens_of(batch.events[1])[0], 20);
  EXPECT_EQ(batch.gauges.running, 1);
  EXPECT_EQ(batch.gauges.totals.steps, 9);
  loop(0).set_steps(1);  // a new process
  EXPECT_EQ(take().gauges.totals.steps, 10);
}

TEST_F(TenantLoopsTest, WithoutKeysAllCallsAreOneTenant) {
  TenantLoops::Options options = by_key();
  options.by_key = false;
  start(options);
  ASSERT_TRUE(submit(1, "whoever") && submit(2, "it says"));
  EXPECT_EQ(loop(0).unfinished_requests(), 2);
}

TEST_F(TenantLoopsTest, AnIdleLoopMakesRoomAndABusyOneDoesNot) {
  start(by_key());
  ASSERT_TRUE(submit(1, "alice") && submit(2, "bob"));
  const Status refused = submit(3, "carol");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("--max-functions"), std::string::npos);
  loop(0).finish(1, 10, 6);
  ASSERT_TRUE(submit(4, "carol"));
  await([this] { return alive() == 2; });
  const OutputBatch batch = take();  // of the loop that is gone, too
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(batch.events[0].request, 1U);
  EXPECT_EQ(batch.gauges.totals.steps, 6);
}

TEST_F(TenantLoopsTest, EachAdapterHasItsLoop) {
  TenantLoops::Options options = by_key();
  options.max_loops = 3;
  start(options);
  ASSERT_TRUE(submit(1, "alice", 0));
  EXPECT_EQ(alive(), 1U);
  ASSERT_TRUE(submit(2, "alice", 0) && submit(3, "alice"));
  EXPECT_EQ(alive(), 2U);
  EXPECT_EQ(loop(0).unfinished_requests(), 2);
  EXPECT_EQ(loop(1).unfinished_requests(), 1);
  ASSERT_TRUE(submit(4, "bob", 0));
  EXPECT_EQ(alive(), 3U);
}

TEST_F(TenantLoopsTest, ManyAdaptersOfATenantDoNotPushOutOthers) {
  TenantLoops::Options options = by_key();
  options.max_loops = 3;
  start(options);
  const auto done = [this](int number, RequestId id) { loop(number).finish(id, 10, 1); };
  ASSERT_TRUE(submit(1, "bob"));
  done(0, 1);
  clock_.advance(std::chrono::seconds(1));
  ASSERT_TRUE(submit(2, "alice") && submit(3, "alice", 0));
  // Alice's loops compute, and bob's idle one is all he has.
  EXPECT_FALSE(submit(4, "alice", 1));
  done(1, 2);
  ASSERT_TRUE(submit(5, "alice", 1));  // instead of her own, though bob's was idle for longer
  await([this] { return alive() == 3; });
  EXPECT_EQ(loop(0).unfinished_requests(), 0);
  // Carol has none, so one of alice's two goes, not bob's.
  done(2, 3);
  ASSERT_TRUE(submit(6, "carol"));
  await([this] { return alive() == 3; });
  ASSERT_TRUE(submit(7, "bob"));
  EXPECT_EQ(loop(0).unfinished_requests(), 1);
}

TEST_F(TenantLoopsTest, AnIdleLoopEndsAfterItsTimeAndAFailedOneAtOnce) {
  TenantLoops::Options options = by_key();
  options.idle = std::chrono::milliseconds(20);
  start(options);
  ASSERT_TRUE(submit(1, "alice"));
  loop(0).finish(1, 10, 3);
  clock_.advance(std::chrono::seconds(1));
  await([this] { return alive() == 0; });
  EXPECT_EQ(take().gauges.totals.steps, 3);
  ASSERT_TRUE(submit(2, "alice"));
  EXPECT_EQ(alive(), 1U);
}

TEST_F(TenantLoopsTest, KvLimitsGoToTheLoopThatTheyAreFor) {
  TenantLoops::Options options = by_key();
  options.first_kv_limit = 100;
  start(options);
  ASSERT_TRUE(submit(1, "alice") && submit(2, "bob"));
  loop(1).hold_kv(70);
  std::int64_t ending = -1;
  auto all = loops_->kv(ending);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(ending, 0);
  EXPECT_EQ(all[0].kv.limit, 100);
  EXPECT_EQ(all[1].kv.held, 70);
  EXPECT_NE(all[0].loop, all[1].loop);
  loops_->limit_kv(all[1].loop, 300);
  loops_->limit_kv(12345, 500);  // there is no such loop
  all = loops_->kv(ending);
  EXPECT_EQ(all[0].kv.limit, 100);
  EXPECT_EQ(all[1].kv.limit, 300);
}

TEST_F(TenantLoopsTest, AnEndingLoopsMemoryCountsUntilItHasEnded) {
  TenantLoops::Options options = by_key();
  options.max_loops = 1;
  start(options);
  ASSERT_TRUE(submit(1, "alice"));
  loop(0).finish(1, 10, 1);
  loop(0).hold_kv(70);
  std::int64_t ending = 0;
  {
    const std::lock_guard lock(shared_.mutex);  // so that no loop can end
    ASSERT_TRUE(loops_->kv(ending).size() == 1 && ending == 0);
  }
  ASSERT_TRUE(submit(2, "bob"));
  await([&] {
    const bool one = loops_->kv(ending).size() == 1;
    return one && ending == 0;
  });
  EXPECT_EQ(alive(), 1U);
}

TEST_F(TenantLoopsTest, AllAnswerTheQuestionForProgress) {
  start(by_key());
  loops_->ask_progress();
  EXPECT_TRUE(take().has_progress);  // no loop, no request
  ASSERT_TRUE(submit(1, "alice") && submit(2, "bob"));
  loops_->ask_progress();
  const OutputBatch batch = take();
  EXPECT_TRUE(batch.has_progress);
  EXPECT_EQ(batch.progress.size(), 2U);
  EXPECT_FALSE(take().has_progress);
}

TEST_F(TenantLoopsTest, AFailedLoadIsTheReasonOfTheFailure) {
  loops_.emplace(by_key(), clock_, [] {});
  loops_->start(
      []() -> Result<TenantLoops::MakeLoop> { return unsupported("the sandbox lacks layers"); });
  await([this] { return loops_->state() != EngineState::kLoading; });
  EXPECT_EQ(loops_->state(), EngineState::kFailed);
  EXPECT_EQ(loops_->failure()->message, "the sandbox lacks layers");
  EXPECT_FALSE(submit(1, "alice"));
}

}  // namespace
}  // namespace sluice
