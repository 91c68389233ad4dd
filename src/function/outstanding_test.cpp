// The server's check of a function's batches: honest ones pass, each kind of lie is found.
#include "function/outstanding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "function/due_times.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr TimePoint kNow{Duration(1000)};

// One request with two choices of at most three tokens, one log-probability a token, and one for
// each token of the prompt but the first.
class OutstandingTest : public testing::Test {
 protected:
  OutstandingTest() {
    Request request;
    request.id = 5;
    request.prompt = {1, 2, 3};
    request.sampling.n = 2;
    request.sampling.max_tokens = 3;
    request.sampling.logprobs = 0;
    request.sampling.prompt_logprobs = 0;
    outstanding_.add(request);
  }

  static OutputBatch batch(std::int32_t choice, std::uint32_t tokens,
                           FinishReason reason = FinishReason::kNone) {
    OutputBatch batch;
    OutputEvent event;
    event.request = 5;
    event.choice = choice;
    event.finish_reason = reason;
    event.num_tokens = tokens;
    event.num_logprobs = tokens;
    event.time = kNow + Duration(1);
    batch.events.push_back(event);
    batch.tokens.assign(tokens, 9);
    batch.logprobs.assign(tokens, {9, -1.0F});
    return batch;
  }
  static OutputBatch scored(OutputBatch batch, std::uint32_t scores) {
    batch.events[0].num_prompt_logprobs = scores;
    batch.prompt_logprobs.assign(scores, {2, -1.0F, 1});
    return batch;
  }
  // The error of a batch; "" if it was accepted.
  std::string error(OutputBatch batch) {
    const Status status = outstanding_.accept(batch, kNow);
    return status ? "" : status.error().message;
  }

  OutstandingRequests outstanding_{{.vocab_size = 10, .hidden_size = 4, .eos_ids = {}}};
};

// The time of the function's report does not count.
TEST_F(OutstandingTest, TokensAreDueAfterTheArrivalAndAfterTheLastOnes) {
  OutstandingRequests outstanding({.vocab_size = 10, .hidden_size = 4, .eos_ids = {}});
  EXPECT_FALSE(outstanding.due());
  Request request;
  request.id = 5;
  request.prompt = {1};
  request.sampling.max_tokens = 3;
  request.arrival = kNow;
  outstanding.add(request);
  EXPECT_EQ(outstanding.due(), kNow + kFirstTokenDue);
  request.id = 6;
  request.arrival = kNow + Duration(1);
  outstanding.add(request);
  EXPECT_EQ(outstanding.due(), kNow + kFirstTokenDue);
  const auto report = [&](RequestId id, TimePoint now, FinishReason reason) {
    OutputBatch made = batch(0, reason == FinishReason::kCancelled ? 0 : 1, reason);
    made.events[0].request = id;
    made.events[0].num_logprobs = 0;
    made.events[0].time = kNow;
    made.logprobs.clear();
    ASSERT_TRUE(outstanding.accept(made, now));
  };
  const TimePoint later = kNow + std::chrono::milliseconds(240);
  report(5, later, FinishReason::kNone);
  EXPECT_EQ(outstanding.due(), kNow + Duration(1) + kFirstTokenDue);
  report(6, later, FinishReason::kCancelled);
  EXPECT_EQ(outstanding.due(), later + kNextTokenDue);
  report(5, later, FinishReason::kLength);
  EXPECT_FALSE(outstanding.due());
}

TEST_F(OutstandingTest, ASoonerGoalIsDueSoonerAndALaterOneIsNot) {
  const auto due_with = [](std::optional<Duration> goal) {
    OutstandingRequests outstanding({100, 0, {}});
    Request request;
    request.prompt = {1};
    request.arrival = kNow;
    request.ttft_goal = goal;
    outstanding.add(request);
    return *outstanding.due();
  };
  EXPECT_EQ(due_with(std::nullopt), kNow + kFirstTokenDue);
  EXPECT_EQ(due_with(std::chrono::milliseconds(40)), kNow + std::chrono::milliseconds(40));
  EXPECT_EQ(due_with(std::chrono::milliseconds(2500)), kNow + kFirstTokenDue);
  EXPECT_EQ(due_with(Duration::min()), kNow) << "an agent takes any goal from the wire";
}

TEST_F(OutstandingTest, AVectorIsThereWhereItWasAskedForInItsLength) {
  Request request;
  request.id = 6;
  request.prompt = {1, 2};
  request.sampling.max_tokens = 1;
  request.pooling = Pooling::kMean;
  outstanding_.add(request);
  const auto vector = [](std::uint32_t length, float value) {
    OutputBatch made = batch(0, 1, FinishReason::kLength);
    made.events[0].request = 6;
    made.events[0].num_logprobs = 0;
    made.logprobs.clear();
    made.events[0].num_embedding = length;
    made.embeddings.assign(length, value);
    return made;
  };
  EXPECT_THAT(error(vector(3, 1.0F)), HasSubstr("another length"));
  std::vector<OutputEvent> ended;
  outstanding_.fail_all(kNow, ended);
  outstanding_.add(request);
  EXPECT_THAT(error(vector(4, std::numeric_limits<float>::infinity())), HasSubstr("finite"));
  EXPECT_EQ(error(vector(4, 1.0F)), "");
  Request other = request;
  other.id = 5;
  other.pooling = Pooling::kNone;
  other.sampling.logprobs = 0;
  outstanding_.add(other);
  OutputBatch unasked = batch(0, 1);
  unasked.events[0].num_embedding = 4;
  unasked.embeddings.assign(4, 1.0F);
  EXPECT_THAT(error(std::move(unasked)), HasSubstr("not asked for"));
}

// A batch that is thrown away ends nothing, or its calls would wait without end.
TEST_F(OutstandingTest, ARefusedBatchLeavesEveryChoiceToFail) {
  OutputBatch twice = batch(0, 1, FinishReason::kLength);
  twice.events[0].num_prompt_logprobs = 2;
  twice.prompt_logprobs.assign(2, {2, -1.0F, 1});
  twice.events.push_back(batch(1, 1, FinishReason::kLength).events[0]);
  twice.events.push_back(twice.events[1]);
  EXPECT_THAT(error(twice), HasSubstr("a choice that has ended"));
  std::vector<OutputEvent> failed;
  outstanding_.fail_all(kNow, failed);
  EXPECT_EQ(failed.size(), 2U);
  EXPECT_EQ(outstanding_.size(), 0U);

  Request request;
  request.id = 7;
  request.prompt = {1};
  outstanding_.add(request);
  OutputBatch refusals;
  refusals.refused = {{7, unavailable("no")}, {8, unavailable("no")}};
  EXPECT_THAT(error(refusals), HasSubstr("unknown"));
  failed.clear();
  outstanding_.fail_all(kNow, failed);
  EXPECT_EQ(failed.size(), 1U);
}

TEST_F(OutstandingTest, AnHonestFunctionIsBelieved) {
  OutputBatch first = scored(batch(0, 1), 2);
  ASSERT_TRUE(outstanding_.accept(first, kNow));
  EXPECT_EQ(first.events[0].time, kNow);  // not in the future
  EXPECT_EQ(error(batch(1, 3, FinishReason::kLength)), "");
  EXPECT_EQ(outstanding_.size(), 1U);
  EXPECT_EQ(error(batch(0, 2, FinishReason::kStop)), "");
  EXPECT_EQ(outstanding_.size(), 0U);
}

TEST_F(OutstandingTest, LiesAreFound) {
  ASSERT_EQ(error(scored(batch(0, 1), 2)), "");
  OutputBatch other = batch(0, 1);
  other.events[0].request = 6;
  EXPECT_THAT(error(other), HasSubstr("unknown request"));
  EXPECT_THAT(error(batch(2, 1)), HasSubstr("unknown choice"));
  EXPECT_THAT(error(batch(-1, 1)), HasSubstr("unknown choice"));
  EXPECT_THAT(error(batch(0, 3)), HasSubstr("max_tokens"));
  OutputBatch fewer = batch(1, 1);
  fewer.events[0].num_logprobs = 0;
  EXPECT_THAT(error(fewer), HasSubstr("another number"));
  OutputBatch word = batch(1, 1);
  word.tokens[0] = 10;
  EXPECT_THAT(error(word), HasSubstr("vocabulary"));
  OutputBatch cached = batch(1, 0);
  cached.events[0].cached_prompt_tokens = 4;
  EXPECT_THAT(error(cached), HasSubstr("cached"));
  OutputBatch refused;
  refused.refused = {{6, invalid_argument("x")}};
  EXPECT_THAT(error(refused), HasSubstr("unknown request"));
  OutputBatch progress;
  progress.progress.resize(1);
  EXPECT_THAT(error(progress), HasSubstr("progress"));
  EXPECT_THAT(error(scored(batch(1, 0), 1)), HasSubstr("of the prompt"));
}

TEST_F(OutstandingTest, AnEndedChoiceStaysEnded) {
  ASSERT_EQ(error(batch(0, 0, FinishReason::kCancelled)), "");
  EXPECT_THAT(error(batch(0, 0)), HasSubstr("has ended"));
}

TEST_F(OutstandingTest, TokensComeAfterTheScoresOfThePrompt) {
  EXPECT_THAT(error(scored(batch(0, 1), 1)), HasSubstr("before all"));
}

TEST_F(OutstandingTest, DeathEndsEveryChoiceThatIsLeft) {
  ASSERT_EQ(error(batch(1, 0, FinishReason::kCancelled)), "");
  std::vector<OutputEvent> events;
  outstanding_.fail_all(kNow, events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].choice, 0);
  EXPECT_EQ(events[0].finish_reason, FinishReason::kError);
  EXPECT_EQ(outstanding_.size(), 0U);
}

// Token 0 ends sequences, tokens 1 to 9 are the texts "1" to "9".
class OutstandingGrammarTest : public testing::Test {
 protected:
  static TokenGrammarPtr grammar(const std::string& pattern) {
    std::vector<std::string> tokens = {""};
    for (char digit = '1'; digit <= '9'; ++digit) tokens.emplace_back(1, digit);
    // Shared: see GrammarVocabularyPtr.
    return compile_or_fail(regex_grammar(pattern),
                           std::make_shared<GrammarVocabulary>(TokenTrie(tokens, 10)));
  }
  static Request request() {
    Request request;
    request.id = 5;
    request.prompt = {1};
    request.sampling.n = 2;
    request.sampling.max_tokens = 9;
    request.sampling.grammar = grammar("12(34)*");
    return request;
  }
  static OutputBatch batch(std::int32_t choice, std::vector<TokenId> tokens, FinishReason reason) {
    OutputBatch batch;
    OutputEvent event;
    event.request = 5;
    event.choice = choice;
    event.finish_reason = reason;
    event.num_tokens = static_cast<std::uint32_t>(tokens.size());
    batch.events.push_back(event);
    batch.tokens = std::move(tokens);
    return batch;
  }
  std::string error(std::vector<TokenId> tokens, FinishReason reason = FinishReason::kNone,
                    std::int32_t choice = 0) {
    OutputBatch one = batch(choice, std::move(tokens), reason);
    const Status status = outstanding_.accept(one, kNow);
    return status ? "" : status.error().message;
  }

  OutstandingRequests outstanding_{{.vocab_size = 10, .hidden_size = 4, .eos_ids = {0}}};
};

TEST_F(OutstandingGrammarTest, WholeTextsAndCutOnesPass) {
  outstanding_.add(request());
  EXPECT_EQ(error({1, 2}), "");
  EXPECT_EQ(error({1, 2, 3}, FinishReason::kLength, 1), "");
  EXPECT_EQ(error({3, 4, 0}, FinishReason::kStop), "");
  EXPECT_EQ(outstanding_.size(), 0U);
}

TEST_F(OutstandingGrammarTest, AfterTheEndOnlyTheEndMayFollow) {
  Request repeats = request();
  repeats.sampling.ignore_eos = true;
  outstanding_.add(repeats);
  EXPECT_EQ(error({1, 2, 0, 0, 0}), "");
  EXPECT_THAT(error({3}), HasSubstr("forbids"));
}

TEST_F(OutstandingGrammarTest, OtherTokensAndEarlyEndsAreLies) {
  const auto lie = [&](std::vector<TokenId> tokens, FinishReason reason) {
    outstanding_ = OutstandingRequests({.vocab_size = 10, .hidden_size = 4, .eos_ids = {0}});
    outstanding_.add(request());
    return error(std::move(tokens), reason);
  };
  EXPECT_THAT(lie({1, 3}, FinishReason::kNone), HasSubstr("forbids"));
  EXPECT_THAT(lie({1, 2, 3, 3}, FinishReason::kNone), HasSubstr("forbids"));
  EXPECT_THAT(lie({1, 0}, FinishReason::kStop), HasSubstr("before the text"));
  EXPECT_THAT(lie({1}, FinishReason::kStop), HasSubstr("stop inside"));
  EXPECT_THAT(lie({1, 2}, FinishReason::kStop), HasSubstr("stop inside"));
  EXPECT_EQ(lie({1}, FinishReason::kError), "");
}

TEST_F(OutstandingGrammarTest, RequestsMayComeAndEndWhileTextsAreChecked) {
  outstanding_.add(request());
  OutputBatch stopped = batch(0, {1}, FinishReason::kStop);
  ASSERT_TRUE(outstanding_.begin(stopped, kNow));
  for (RequestId id = 6; id < 100; ++id) {
    Request other = request();
    other.id = id;
    outstanding_.add(other);
  }
  ASSERT_TRUE(outstanding_.check_texts());
  outstanding_.end_choice(5, 0);
  EXPECT_TRUE(outstanding_.finish(stopped));
  EXPECT_THAT(error({1}, FinishReason::kNone), HasSubstr("has ended"));
  EXPECT_EQ(error({1, 2}, FinishReason::kLength, 1), "");
  EXPECT_EQ(outstanding_.size(), 94U);
  // A batch that was refused leaves nothing for the next one.
  OutputBatch wrong = batch(0, {7}, FinishReason::kNone);
  wrong.events[0].request = 6;
  ASSERT_TRUE(outstanding_.begin(wrong, kNow));
  EXPECT_FALSE(outstanding_.check_texts());
  OutputBatch right = batch(0, {1}, FinishReason::kNone);
  right.events[0].request = 7;
  EXPECT_TRUE(outstanding_.accept(right, kNow));
}

TEST_F(OutstandingGrammarTest, TheServerAndStopIdsMayEndATextAnywhere) {
  outstanding_.add(request());
  outstanding_.end_choice(5, 0);
  outstanding_.end_choice(5, 7);
  outstanding_.end_choice(6, 0);
  EXPECT_EQ(error({1}, FinishReason::kStop), "");
  EXPECT_THAT(error({1}, FinishReason::kStop, 1), HasSubstr("stop inside"));
  Request stops = request();
  stops.id = 5;
  stops.sampling.stop_token_ids = {2};
  OutstandingRequests others({.vocab_size = 10, .hidden_size = 4, .eos_ids = {0}});
  others.add(stops);
  OutputBatch stopped = batch(0, {1, 2}, FinishReason::kStop);
  EXPECT_TRUE(others.accept(stopped, kNow));
}

}  // namespace
}  // namespace sluice
