#include "loadgen/offline_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_engine.h"

namespace sluice {
namespace {

class OfflineRunTest : public testing::Test {
 protected:
  void SetUp() override { make({}); }

  void make(FakeEngineOptions options) {
    options.num_blocks = 256;
    engine_ = make_fake_engine(model_, clock_, options);
  }

  static Workload workload(std::size_t count, std::int32_t prompt, std::int32_t output) {
    Workload workload;
    workload.requests.assign(count, WorkloadRequest{Duration(0), prompt, output, {}});
    return workload;
  }

  Result<OfflineResult> run(const OfflineOptions& options, const Workload& workload) {
    return run_offline(*engine_, options, workload, PromptMaker(middle_ids(model_.vocab_size), 7),
                       clock_);
  }

  FakeModel model_;
  SystemClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(OfflineRunTest, BatchesFollowOneAnotherAndEveryTokenIsCountedOnce) {
  OfflineOptions options;
  options.batch_size = 4;
  const auto result = run(options, workload(10, 20, 5));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->latencies.size(), 3U);
  EXPECT_EQ(result->summary.completed, 10);
  EXPECT_EQ(result->summary.total_input_tokens, 200);
  EXPECT_EQ(result->summary.total_output_tokens, 50);
  EXPECT_EQ(result->summary.max_concurrent_requests, 4);
  const StepTotals& prefill = result->prefill;
  const StepTotals& decode = result->decode;
  const StepTotals& hybrid = result->hybrid;
  EXPECT_EQ(prefill.prefill_tokens + hybrid.prefill_tokens, 200);
  EXPECT_EQ(decode.decode_tokens + hybrid.decode_tokens, 10 * 4);  // the first is the prompt's
  EXPECT_EQ(prefill.decode_tokens + decode.prefill_tokens, 0);
  EXPECT_EQ(prefill.steps, 6);  // two a batch, to the end of its first prompt; then it decodes
  EXPECT_GT(hybrid.steps, 0);
  EXPECT_EQ(prefill.steps + decode.steps + hybrid.steps, engine_->stats().steps);
  EXPECT_LE(prefill.time + decode.time + hybrid.time, result->summary.duration);
  for (const StepTotals& totals : {prefill, decode, hybrid}) {
    EXPECT_EQ(totals.computed.matmul_rows, 16 * totals.steps);  // the fake's
    EXPECT_EQ(totals.computed.matmul_rows - totals.computed.matmul_rows_padding,
              totals.prefill_tokens + totals.decode_tokens);
    EXPECT_EQ(totals.computed.attention_pairs_padding, 75 * totals.steps);
  }
  EXPECT_FALSE(result->interrupted);
  EXPECT_EQ(engine_->num_requests(), 0U);
}

TEST_F(OfflineRunTest, ALongQueueIsFedAsItDrains) {
  OfflineOptions options;
  options.max_waiting = 2;
  std::size_t most = 0;
  options.progress_every = Duration(1);
  options.progress = [&](const LoadProgress&) { most = std::max(most, engine_->num_requests()); };
  const auto result = run(options, workload(100, 10, 3));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->summary.completed, 100);
  EXPECT_EQ(result->latencies.size(), 1U);
  EXPECT_GT(most, 0U);
  EXPECT_LE(most, 8U + 2U);  // running and waiting
}

TEST_F(OfflineRunTest, ARefusedRequestIsAnErrorThatNamesIt) {
  Workload mixed = workload(3, 10, 3);
  mixed.requests[2].prompt_tokens = 200;
  const auto result = run({}, mixed);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, testing::HasSubstr("request 3"));
  EXPECT_THAT(result.error().message, testing::HasSubstr("context"));
}

TEST_F(OfflineRunTest, AnEngineThatFailsEndsTheRun) {
  make({.good_steps = 3});
  EXPECT_FALSE(run({}, workload(4, 20, 5)));
}

TEST_F(OfflineRunTest, AnInterruptedRunKeepsItsFigures) {
  OfflineOptions options;
  bool interrupted = false;
  options.interrupted = [&] { return interrupted; };
  options.batch_size = 10;
  options.progress_every = Duration(1);
  options.progress = [&](const LoadProgress& progress) { interrupted = progress.completed > 10; };
  const auto result = run(options, workload(50, 10, 4));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->interrupted);
  EXPECT_GT(result->summary.completed, 10);
  EXPECT_LT(result->summary.completed, 20);
  EXPECT_GT(result->summary.unfinished, 0);
  EXPECT_EQ(result->summary.completed + result->summary.unfinished, 20);
  EXPECT_EQ(result->not_started, 30);
  EXPECT_EQ(result->latencies.size(), 1U);
  EXPECT_EQ(engine_->num_requests(), 0U);
}

}  // namespace
}  // namespace sluice
