#include "server/generations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "server/answer_size.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/demo_model.h"
#include "tests/support/fake_engine_loop.h"
#include "tests/support/fake_exchange.h"

namespace sluice {
namespace {

using nlohmann::json;
using test::FakeEngineLoop;
using test::FakeExchange;

const ServedModel& long_context_model() {
  static const ServedModel model = test::load_demo_model(131072);
  return model;
}

class GenerationsTest : public testing::Test {
 protected:
  struct Job {
    std::function<void()> work;
    std::function<void()> done;
  };

  // Shared as every exchange is.
  std::shared_ptr<FakeExchange> start(const json& body) { return start(body, {}, {}); }
  std::shared_ptr<FakeExchange> start(const json& body, std::optional<ResumeStore::Key> key,
                                      std::vector<TokenId> resumed) {
    auto call = parse_completion_call(dump_json(body));
    CHECK(call.has_value());
    PromptWorker worker(long_context_model());
    auto prepared = prepare_generation(worker, *std::move(call), "");
    CHECK(prepared.has_value());
    prepared->resume = std::move(key);
    prepared->resumed = std::move(resumed);
    auto exchange = std::make_shared<FakeExchange>(http::Request{});
    generations_.start(exchange, *std::move(prepared),
                       {ApiKind::kCompletion, "cmpl-1", 7, "demo", ""},
                       long_context_model().tokenizer, {});
    return exchange;
  }

  // One step that ends the request's choice with `count` tokens and their log-probabilities.
  void finish(RequestId id, std::uint32_t count, std::uint32_t entries_per_token) {
    OutputBatch& batch = engine_.pending;
    OutputEvent event;
    event.request = id;
    event.finish_reason = FinishReason::kLength;
    event.num_tokens = count;
    event.num_logprobs = count * entries_per_token;
    batch.tokens.assign(count, TokenId{70});
    batch.logprobs.assign(event.num_logprobs, TokenLogprob{70, -0.5F});
    batch.events.push_back(event);
    generations_.take_outputs();
  }

  FakeEngineLoop engine_;
  std::deque<Job> jobs_;
  ManualClock clock_;
  ServerMetrics metrics_{{}};
  std::unique_ptr<AccessLog> log_ = *AccessLog::open("off");
  Generations generations_{
      engine_,
      [this](std::size_t, std::function<void()> work, std::function<void()> done) {
        jobs_.push_back({std::move(work), std::move(done)});
      },
      clock_,
      *log_,
      metrics_,
      std::chrono::seconds(15)};
};

const json kLong = {{"model", "demo"}, {"prompt", "x"}, {"max_tokens", 5000}, {"logprobs", 20}};

TEST_F(GenerationsTest, AShortAnswerIsMadeAtOnce) {
  const auto exchange = start({{"model", "demo"}, {"prompt", "x"}, {"logprobs", 2}});
  finish(1, 3, 3);
  EXPECT_TRUE(jobs_.empty());
  EXPECT_TRUE(exchange->ended);
  EXPECT_EQ(generations_.active(), 0U);
}

TEST_F(GenerationsTest, ACallWithATimeoutEndsThen) {
  const auto late = start({{"model", "demo"}, {"prompt", "x"}, {"timeout", 2.5}});
  const auto in_time = start({{"model", "demo"}, {"prompt", "x"}, {"timeout", 2.5}});
  const auto patient = start({{"model", "demo"}, {"prompt", "x"}});
  ASSERT_TRUE(generations_.any_deadline());
  finish(2, 3, 0);
  clock_.advance(std::chrono::milliseconds(2499));
  generations_.end_late();
  EXPECT_FALSE(late->ended);
  clock_.advance(std::chrono::milliseconds(1));
  generations_.end_late();
  ASSERT_TRUE(late->ended);
  EXPECT_EQ(late->head->status, 504);
  EXPECT_THAT(late->body, testing::HasSubstr("not complete after 2.5 s (timeout)"));
  EXPECT_THAT(engine_.cancelled, testing::ElementsAre(1));
  EXPECT_EQ(in_time->head->status, 200);
  EXPECT_FALSE(patient->ended);
  EXPECT_FALSE(generations_.any_deadline());
}

// A saved answer stays until the call is answered: a refusal, a client that leaves and a crash do
// not cost it.
TEST_F(GenerationsTest, ASavedAnswerStaysUntilItsCallIsAnswered) {
  TempDirectory folder;
  const auto store = std::make_shared<const ResumeStore>(
      folder.path(), HmacKey{}, ResumeStore::Limits{});  // shared: as served
  generations_.set_resume_store(store);
  const json body = {{"model", "demo"}, {"prompt", "x"}, {"stream", true}};
  const ResumeStore::Key key{"tenant", "id", {1, 2}, {}};
  start(body, key, {});
  EXPECT_EQ(generations_.save_unfinished(), 0) << "it has no token yet";
  start({{"model", "demo"}, {"prompt", "x"}});
  start(body, key, {70, 71});
  EXPECT_EQ(generations_.save_unfinished(), 1);
  generations_.fail_all(to_api_error(unavailable("the engine is stopping")));
  ASSERT_TRUE(store->find(key));

  engine_.refusal = resource_exhausted("the queue is full");
  EXPECT_EQ(start(body, key, store->find(key)->tokens)->head->status, 429);
  EXPECT_TRUE(store->find(key));
  engine_.refusal.reset();
  start(body, key, store->find(key)->tokens)->leave(http::CloseReason::kPeerGone);
  EXPECT_EQ(generations_.active(), 0U);
  EXPECT_TRUE(store->find(key));
  const auto again = start(body, key, store->find(key)->tokens);
  EXPECT_TRUE(store->find(key));
  finish(engine_.submitted.back().id, 3, 0);
  EXPECT_TRUE(again->ended);
  EXPECT_FALSE(store->find(key));
}

TEST_F(GenerationsTest, OnlyRefusalsThatEndSayWhenToTryAgain) {
  const json body = {{"model", "demo"}, {"prompt", "x"}};
  const auto refuse = [&](Error error) {
    engine_.refusal = std::move(error);
    const auto exchange = start(body);
    const bool again = std::ranges::any_of(
        exchange->head->headers, [](const auto& header) { return header.name == "Retry-After"; });
    return std::pair(exchange->head->status, again);
  };
  EXPECT_EQ(refuse(resource_exhausted("the queue is full")), std::pair(429, true));
  EXPECT_EQ(refuse(unavailable("the engine is stopping")), std::pair(503, true));
  EXPECT_EQ(refuse(invalid_argument("the request is too large")), std::pair(400, false));
}

TEST_F(GenerationsTest, ALongAnswerIsMadeByAWorker) {
  const auto exchange = start(kLong);
  finish(1, 5000, 21);
  ASSERT_EQ(jobs_.size(), 1U);
  EXPECT_FALSE(exchange->ended);
  EXPECT_EQ(generations_.active(), 1U);
  jobs_[0].work();
  EXPECT_FALSE(exchange->ended);
  jobs_[0].done();
  ASSERT_TRUE(exchange->ended);
  EXPECT_EQ(generations_.active(), 0U);
  const json answer = parse_json(exchange->body);
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), 5000U);
  EXPECT_EQ(logprobs["text_offset"][4999], 4999);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5000);
}

TEST_F(GenerationsTest, AnAnswerWhoseClientHasLeftIsNotMade) {
  const auto exchange = start(kLong);
  finish(1, 5000, 21);
  exchange->leave(http::CloseReason::kPeerGone);
  EXPECT_EQ(generations_.active(), 0U);
  jobs_.at(0).work();
  jobs_.at(0).done();
  EXPECT_FALSE(exchange->ended);
}

TEST_F(GenerationsTest, AnAnswerThatIsBeingMadeEndsWithTheServer) {
  const auto exchange = start(kLong);
  finish(1, 5000, 21);
  generations_.fail_all(to_api_error(unavailable("stopping")));
  ASSERT_TRUE(exchange->ended);
  EXPECT_EQ(exchange->head->status, 503);
  jobs_.at(0).work();
  jobs_.at(0).done();  // the call is already answered
}

TEST_F(GenerationsTest, LongAnswersAreRefusedWhenTogetherTheyCouldHoldTooMuch) {
  const json call = {{"model", "demo"}, {"prompt", "x"}, {"max_tokens", 50000}, {"logprobs", 20}};
  std::vector<std::shared_ptr<FakeExchange>> taken;
  for (;;) {
    taken.push_back(start(call));
    if (taken.back()->ended) break;
    ASSERT_LT(taken.size(), 100U);
  }
  EXPECT_EQ(taken.back()->head->status, 429);
  EXPECT_GT(taken.size() * 50000 * 21 * sizeof(TokenLogprob), kMaxHeldBytes / 2);
  // Streams and small calls are still taken, and so is a long one when another has ended.
  EXPECT_FALSE(start({{"model", "demo"}, {"prompt", "x"}, {"logprobs", 20}})->ended);
  json stream = call;
  stream["stream"] = true;
  EXPECT_FALSE(start(stream)->ended);
  taken.front()->leave(http::CloseReason::kPeerGone);
  EXPECT_FALSE(start(call)->ended);
}

}  // namespace
}  // namespace sluice
