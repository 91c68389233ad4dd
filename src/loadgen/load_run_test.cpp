// Runs against a server whose answers the test chooses: counts, times and failures.
#include "loadgen/load_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <set>
#include <thread>

#include "loadgen/test_openai_server.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Workload even_workload(int count, Duration gap) {
  Workload workload;
  for (int i = 0; i < count; ++i) workload.requests.push_back({i * gap, 8, 4, {}});
  return workload;
}

LoadOptions options_against(const TestOpenAiServer& server) {
  LoadOptions options;
  options.client = server.client_options();
  options.form.model = "m";
  return options;
}

LoadResult run_against(const LoadOptions& options, const Workload& workload) {
  const SystemClock clock;
  auto result = run_load(options, workload, PromptMaker({1, 2, 3, 4}, 1), clock);
  EXPECT_TRUE(result.has_value());
  return std::move(*result);
}

TEST(LoadRun, EveryRequestIsSentAndItsTokensCounted) {
  TestOpenAiServer server;
  const LoadResult result = run_against(options_against(server), even_workload(20, Duration(0)));
  EXPECT_EQ(result.end, LoadEnd::kAllEnded);
  EXPECT_EQ(result.summary.completed, 20);
  EXPECT_EQ(result.summary.failed + result.summary.unfinished + result.not_sent, 0);
  EXPECT_EQ(result.summary.total_output_tokens, 80);
  EXPECT_EQ(result.summary.total_input_tokens, 100);  // as usage says, not as asked for
  EXPECT_EQ(result.summary.ttft.count(), 20);
  EXPECT_EQ(result.summary.tbt.count(), 60);
  const auto bodies = server.bodies();
  EXPECT_EQ(std::set<std::string>(bodies.begin(), bodies.end()).size(), 20U);
}

TEST(LoadRun, TokensAreCountedByUsageGapsByChunk) {
  TestOpenAiServer server;
  server.answer = [](const auto& exchange, int) {
    TestOpenAiServer::stream_tokens(*exchange, 3, 12);
  };
  const LoadResult result = run_against(options_against(server), even_workload(2, Duration(0)));
  EXPECT_EQ(result.summary.total_output_tokens, 24);
  EXPECT_EQ(result.summary.tbt.count(), 4);
}

TEST(LoadRun, KeepsWhatCameForEachRequestWhenAsked) {
  TestOpenAiServer server;
  LoadOptions options = options_against(server);
  EXPECT_TRUE(run_against(options, even_workload(3, Duration(0))).answers.empty());
  options.keep_answers = true;
  const LoadResult result = run_against(options, even_workload(30, Duration(0)));
  ASSERT_EQ(result.answers.size(), result.records.size());
  for (const AnswerDetail& answer :
       result.answers) {  // flights are used again: none keeps another's
    EXPECT_EQ(answer.text, " x x x x");
    EXPECT_EQ(answer.gaps_s.size(), 3U);
  }
}

TEST(LoadRun, ArrivalsDoNotWaitForAnswers) {
  std::vector<TestOpenAiServer::ExchangePtr> held;  // of the server's thread, which ends first
  TestOpenAiServer server;
  server.answer = [&](const auto& exchange, int) {
    held.push_back(exchange);
    if (held.size() < 10) return;
    for (const auto& one : held) TestOpenAiServer::stream_tokens(*one, 2, 2);
    held.clear();
  };
  const LoadResult result =
      run_against(options_against(server), even_workload(10, milliseconds(10)));
  EXPECT_EQ(result.summary.completed, 10);
  EXPECT_EQ(result.summary.max_concurrent_requests, 10);
  // The first waited for the tenth's arrival.
  EXPECT_GE(result.summary.ttft.greatest(), milliseconds(85));
  EXPECT_NEAR(result.summary.realised_rate, 100, 1);
}

TEST(LoadRun, OpenLoopCountsTheWaitForAPlaceClosedLoopDoesNot) {
  TestOpenAiServer server;
  server.answer = [](const auto& exchange, int) {
    std::this_thread::sleep_for(milliseconds(10));
    TestOpenAiServer::stream_tokens(*exchange, 2, 2);
  };
  LoadOptions options = options_against(server);
  options.max_concurrency = 1;
  const LoadResult open = run_against(options, even_workload(8, Duration(0)));
  EXPECT_EQ(open.summary.max_concurrent_requests, 1);
  EXPECT_GE(open.summary.ttft.greatest(), milliseconds(75));
  options.closed_loop = true;
  const LoadResult closed = run_against(options, even_workload(8, Duration(0)));
  EXPECT_EQ(closed.summary.completed, 8);
  // The last one of the open loop waited for seven others, however long each took.
  EXPECT_LT(closed.summary.ttft.percentile(50), open.summary.ttft.greatest() / 2);
  for (const RequestRecord& record : closed.records) EXPECT_EQ(record.arrival, record.sent);
}

TEST(LoadRun, AFailedRequestFailsAloneAndSaysWhy) {
  TestOpenAiServer server;
  server.answer = [](const auto& exchange, int number) {
    switch (number) {
      case 0:
        return exchange->respond({429, "application/json", {}, R"({"error":{"message":"full"}})"});
      case 1: return exchange->respond({500, "text/plain", {}, "oops"});
      case 2: return exchange->respond({200, "application/json", {}, R"({"choices":[]})"});
      case 3:
        TestOpenAiServer::begin_stream(*exchange);
        exchange->write("data: {\"error\":{\"message\":\"engine failed\"}}\n\n");
        return exchange->end_stream();
      case 4:
        TestOpenAiServer::begin_stream(*exchange);
        TestOpenAiServer::write_token(*exchange, false);
        return exchange->end_stream();
      case 5:
        TestOpenAiServer::begin_stream(*exchange);
        exchange->write("data: nonsense\n\n");
        return exchange->end_stream();
      case 6:  // on a kept connection: sent once more
      case 7: return exchange->abort();
      default: return TestOpenAiServer::stream_tokens(*exchange, 4, 4);
    }
  };
  LoadOptions options = options_against(server);
  options.max_concurrency = 1;
  options.closed_loop = true;
  const LoadResult result = run_against(options, even_workload(12, Duration(0)));
  EXPECT_EQ(result.end, LoadEnd::kAllEnded);
  EXPECT_EQ(result.summary.failed, 7);
  EXPECT_EQ(result.summary.completed, 5);
  std::string all;
  for (const auto& [message, count] : result.errors) {
    EXPECT_EQ(count, 1) << message;
    all += message + "\n";
  }
  EXPECT_THAT(all, HasSubstr("HTTP 429: full"));
  EXPECT_THAT(all, HasSubstr("HTTP 500: oops"));
  EXPECT_THAT(all, HasSubstr("not an event stream"));
  EXPECT_THAT(all, HasSubstr("engine failed"));
  EXPECT_THAT(all, HasSubstr("without a finish_reason"));
  EXPECT_THAT(all, HasSubstr("not a JSON object: nonsense"));
  EXPECT_THAT(all, HasSubstr("closed the connection"));
}

TEST(LoadRun, AtTheTimeLimitWhatHasNotEndedStaysInTheFigures) {
  std::vector<TestOpenAiServer::ExchangePtr> held;  // of the server's thread, which ends first
  TestOpenAiServer server;
  server.answer = [&](const auto& exchange, int number) {
    if (number == 0) return TestOpenAiServer::stream_tokens(*exchange, 4, 4);
    held.push_back(exchange);
    if (number != 1) return;
    TestOpenAiServer::begin_stream(*exchange);
    TestOpenAiServer::write_token(*exchange, false);
  };
  LoadOptions options = options_against(server);
  options.max_concurrency = 3;
  options.time_limit = milliseconds(300);
  Workload workload = even_workload(5, Duration(0));
  workload.requests.push_back({seconds(60), 8, 4, {}});
  const LoadResult result = run_against(options, workload);
  EXPECT_EQ(result.end, LoadEnd::kTimeLimit);
  EXPECT_EQ(result.summary.completed, 1);
  EXPECT_EQ(result.summary.unfinished, 4);
  EXPECT_EQ(result.not_sent, 1);
  EXPECT_EQ(result.records.size(), 5U);
  EXPECT_EQ(result.summary.ttft.count(), 5);
  EXPECT_GE(result.summary.ttft.percentile(60), milliseconds(290));
  EXPECT_GE(result.summary.tbt.greatest(), milliseconds(250));  // the open gap
  server.on_loop([&] { held.clear(); });
}

TEST(LoadRun, AServerThatDiesEndsTheRunAndKeepsWhatWasMeasured) {
  TestOpenAiServer server;
  server.answer = [&](const auto& exchange, int number) {
    if (number == 5) return server.die();
    TestOpenAiServer::stream_tokens(*exchange, 4, 4);
  };
  LoadOptions options = options_against(server);
  options.max_concurrency = 4;
  options.closed_loop = true;
  const LoadResult result = run_against(options, even_workload(1000, Duration(0)));
  EXPECT_EQ(result.end, LoadEnd::kServerGone);
  EXPECT_GE(result.summary.completed, 1);
  EXPECT_GE(result.summary.failed, kGoneAfter);
  EXPECT_LE(result.summary.failed, kGoneAfter + 8);
  EXPECT_EQ(result.summary.completed + result.summary.failed + result.not_sent, 1000);
  EXPECT_THAT(result.errors.front().first, HasSubstr("refused"));
}

TEST(LoadRun, AnInterruptEndsTheRun) {
  std::vector<TestOpenAiServer::ExchangePtr> held;  // of the server's thread, which ends first
  TestOpenAiServer server;
  server.answer = [&](const auto& exchange, int) {
    held.push_back(exchange);
    raise(SIGINT);
  };
  const LoadResult result = run_against(options_against(server), even_workload(1, Duration(0)));
  EXPECT_EQ(result.end, LoadEnd::kInterrupted);
  EXPECT_EQ(result.summary.unfinished, 1);
  server.on_loop([&] { held.clear(); });
}

TEST(LoadRun, AnAnswerWithoutTextHasItsTokenAtItsEnd) {
  TestOpenAiServer server;
  server.answer = [](const auto& exchange, int) {
    TestOpenAiServer::begin_stream(*exchange);
    exchange->write(
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n");
    exchange->end_stream();
  };
  LoadOptions options = options_against(server);
  options.form.endpoint = LoadEndpoint::kChat;
  const LoadResult result = run_against(options, even_workload(1, Duration(0)));
  EXPECT_EQ(result.summary.completed, 1);
  EXPECT_TRUE(result.records.front().first_token.has_value());
  EXPECT_EQ(result.summary.total_output_tokens, 1);
}

TEST(LoadRun, KeepsDetailsAndTellsProgressWhenAsked) {
  TestOpenAiServer server;
  server.metrics = {200, "text/plain", {}, "v:num_requests_running 2\nv:kv_cache_usage_perc 0.5\n"};
  LoadOptions options = options_against(server);
  options.keep_details = true;
  int told = 0;
  LoadProgress last;
  options.progress_every = milliseconds(10);
  options.progress = [&](const LoadProgress& progress) {
    ++told;
    last = progress;
  };
  const LoadResult result = run_against(options, even_workload(5, milliseconds(20)));
  EXPECT_EQ(result.chunks.size(), 20U);
  EXPECT_EQ(std::count_if(result.chunks.begin(), result.chunks.end(),
                          [](const ChunkMark& chunk) { return chunk.gap_ms < 0; }),
            5);
  ASSERT_FALSE(result.samples.empty());
  EXPECT_EQ(result.samples.front().running, 2);
  EXPECT_EQ(result.samples.front().kv_usage, 0.5);
  EXPECT_GE(told, 3);
  EXPECT_EQ(last.completed, 5);
  EXPECT_EQ(last.output_tokens, 20);
}

}  // namespace
}  // namespace sluice
