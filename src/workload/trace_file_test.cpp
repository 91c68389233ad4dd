#include "workload/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 23:59:59.5000000,374,44\n"
    "2023-11-17 00:00:00.2500000,396,109\n"
    "2023-11-17 00:00:00.2500000,8,1\n";

constexpr std::string_view kMooncake =
    "{\"timestamp\": 27482, \"input_length\": 1200, \"output_length\": 52, \"hash_ids\": [46, 47, "
    "48]}\n"
    "{\"timestamp\": 30535.5, \"input_length\": 600, \"output_length\": 26, \"hash_ids\": [46]}\n"
    "{\"timestamp\": 30536, \"input_length\": 6, \"output_length\": 2}\n";

std::string error_of_trace(std::string_view text, const TraceOptions& options = {}) {
  const auto workload = parse_trace(text, "t", options);
  return workload ? "accepted" : workload.error().message;
}

TEST(TraceFile, AzureCsv) {
  const auto workload = parse_trace(kAzure, "azure.csv", {});
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->source, "azure.csv");
  ASSERT_EQ(workload->requests.size(), 3U);
  EXPECT_EQ(workload->requests[0].arrival, Duration(0));
  EXPECT_EQ(workload->requests[1].arrival, milliseconds(750));  // over midnight
  EXPECT_EQ(workload->requests[2].arrival, milliseconds(750));
  EXPECT_EQ(workload->requests[1].prompt_tokens, 396);
  EXPECT_EQ(workload->requests[1].output_tokens, 109);
  EXPECT_TRUE(workload->requests[1].prefix_pieces.empty());
}

TEST(TraceFile, ColumnsInAnyOrderAndMoreOfThem) {
  const auto workload = parse_trace(
      "\xEF\xBB\xBF\"GeneratedTokens\",Model,TIMESTAMP,ContextTokens\r\n"
      "7,\"a, b\",\"2024-05-10 00:00:00.009930+00:00\",8\r\n",
      "t", {});
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->requests[0].prompt_tokens, 8);
  EXPECT_EQ(workload->requests[0].output_tokens, 7);
}

TEST(TraceFile, MooncakeJsonl) {
  const auto workload = parse_trace(kMooncake, "mooncake.jsonl", {});
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 3U);
  EXPECT_EQ(workload->requests[0].arrival, Duration(0));
  EXPECT_EQ(workload->requests[1].arrival, std::chrono::microseconds(3'053'500));
  EXPECT_EQ(workload->requests[0].prompt_tokens, 1200);
  EXPECT_EQ(workload->requests[0].output_tokens, 52);
  EXPECT_THAT(workload->requests[0].prefix_pieces, ElementsAre(46U, 47U, 48U));
  EXPECT_THAT(workload->requests[1].prefix_pieces, ElementsAre(46U));
  EXPECT_TRUE(workload->requests[2].prefix_pieces.empty());
}

TEST(TraceFile, JsonLinesWithByteOrderMarkAndCarriageReturns) {
  const auto workload = parse_trace(
      "\xEF\xBB\xBF{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\r\n"
      "{\"timestamp\":1,\"input_length\":2,\"output_length\":2}\r\n\r\n",
      "t", {});
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->requests.size(), 2U);
}

TEST(TraceFile, TheFirstRequestsOnlyAndTheRestUnread) {
  TraceOptions options;
  options.max_requests = 2;
  const auto azure = parse_trace(std::string(kAzure) + "garbage\n", "t", options);
  ASSERT_TRUE(azure) << azure.error().message;
  EXPECT_EQ(azure->requests.size(), 2U);
  const auto mooncake = parse_trace(std::string(kMooncake) + "garbage\n", "t", options);
  ASSERT_TRUE(mooncake) << mooncake.error().message;
  EXPECT_EQ(mooncake->requests.size(), 2U);
}

TEST(TraceFile, RateAndLengthScale) {
  TraceOptions options;
  options.rate_scale = 3;
  options.length_scale = 0.25;
  const auto workload = parse_trace(kAzure, "t", options);
  ASSERT_TRUE(workload);
  EXPECT_EQ(workload->requests[1].arrival, milliseconds(250));
  EXPECT_EQ(workload->requests[1].prompt_tokens, 99);
  EXPECT_EQ(workload->requests[1].output_tokens, 27);
  EXPECT_EQ(workload->requests[2].output_tokens, 1);  // a quarter, but at least one
}

TEST(TraceFile, RequestsBeyondTheContext) {
  TraceOptions options;
  options.max_total = 418;
  EXPECT_EQ(error_of_trace(kAzure, options),
            "t:3: 396 prompt and 109 output tokens are more than the context of 418 "
            "(--max-model-len); give a larger one, or --too-long shorten or skip");
  options.too_long = TooLong::kShorten;
  const auto shortened = parse_trace(kAzure, "t", options);
  ASSERT_TRUE(shortened);
  EXPECT_EQ(shortened->source, "t, 1 shortened");
  EXPECT_EQ(shortened->requests[0].prompt_tokens, 374);  // fits exactly
  EXPECT_EQ(shortened->requests[1].prompt_tokens, 327);
  EXPECT_EQ(shortened->requests[1].output_tokens, 90);
  options.too_long = TooLong::kSkip;
  const auto skipped = parse_trace(kAzure, "t", options);
  ASSERT_TRUE(skipped);
  EXPECT_EQ(skipped->source, "t, 1 skipped");
  EXPECT_EQ(skipped->requests.size(), 2U);
  options.max_total = 2;
  EXPECT_EQ(error_of_trace(kAzure, options),
            "t: all 3 requests are longer than the context of 2 (--max-model-len) and were "
            "skipped; give a larger one, or --too-long shorten");
}

TEST(TraceFile, TheRunStartsWithTheFirstThatIsKept) {
  TraceOptions options;
  options.max_total = 20;
  options.too_long = TooLong::kSkip;
  const auto workload = parse_trace(kAzure, "t", options);
  ASSERT_TRUE(workload);
  ASSERT_EQ(workload->requests.size(), 1U);
  EXPECT_EQ(workload->requests[0].arrival, Duration(0));
}

TEST(TraceFile, ShorterPromptsHaveFewerPieces) {
  TraceOptions options;
  options.max_total = 600;
  options.too_long = TooLong::kShorten;
  const auto workload = parse_trace(kMooncake, "t", options);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_LE(workload->requests[0].prompt_tokens, 600);
  EXPECT_THAT(workload->requests[0].prefix_pieces, ElementsAre(46U, 47U));
}

// Prompts of 8 and 6 pieces whose first 5 are equal, with other scales.
TEST(TraceFile, ScaledPromptsShareWhatTheyShared) {
  const std::string text =
      "{\"timestamp\":0,\"input_length\":4096,\"output_length\":1,\"hash_ids\":[1,2,3,4,5,6,7,8]}\n"
      "{\"timestamp\":0,\"input_length\":3000,\"output_length\":1,\"hash_ids\":[1,2,3,4,5,9]}\n"
      "{\"timestamp\":0,\"input_length\":3000,\"output_length\":1,\"hash_ids\":[1,2,3,4,5]}\n";
  const auto shared_pieces = [&](double scale) {
    TraceOptions options;
    options.length_scale = scale;
    const auto workload = parse_trace(text, "t", options);
    EXPECT_TRUE(workload);
    const auto& a = workload->requests[0].prefix_pieces;
    const auto& b = workload->requests[1].prefix_pieces;
    EXPECT_EQ(std::set<std::uint64_t>(a.begin(), a.end()).size(), a.size());
    EXPECT_EQ(a.size(),
              static_cast<std::size_t>((workload->requests[0].prompt_tokens + 511) / 512));
    // The third names its first 2,560 tokens only.
    EXPECT_EQ(workload->requests[2].prefix_pieces.size(), static_cast<std::size_t>(5 * scale));
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  };
  EXPECT_EQ(shared_pieces(1), 5);
  EXPECT_EQ(shared_pieces(0.5), 2);
  EXPECT_EQ(shared_pieces(0.25), 1);
  EXPECT_EQ(shared_pieces(2), 10);
}

TEST(TraceFile, UnsortedTimesNameBothLines) {
  EXPECT_EQ(error_of_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2023-11-16 00:00:01,1,1\n"
                           "2023-11-16 00:00:02,1,1\n"
                           "2023-11-16 00:00:00,1,1\n"),
            "t:4: \"TIMESTAMP\": got \"2023-11-16 00:00:00\", which is before \"2023-11-16 "
            "00:00:02\" of line 3; sort the file by time");
  EXPECT_EQ(error_of_trace("{\"timestamp\":5,\"input_length\":1,\"output_length\":1}\n"
                           "{\"timestamp\":4.5,\"input_length\":1,\"output_length\":1}\n"),
            "t:2: \"timestamp\": got \"4.5\", which is before \"5\" of line 1; sort the file by "
            "time");
}

TEST(TraceFile, BadCsvNamesLineAndColumn) {
  EXPECT_THAT(error_of_trace("TIMESTAMP,ContextTokens\n"),
              HasSubstr("t:1: no column \"GeneratedTokens\"; a trace is a csv with TIMESTAMP"));
  EXPECT_THAT(error_of_trace("num_prefill_tokens,num_decode_tokens\n1,2\n"),
              HasSubstr("give it as --lengths"));
  EXPECT_EQ(error_of_trace("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n"),
            "t:2: column \"TIMESTAMP\": got \"yesterday\", expected a time as 2023-11-16 "
            "18:15:46.6805900");
  EXPECT_EQ(error_of_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2023-11-16 00:00:01,1,-3\n"),
            "t:2: column \"GeneratedTokens\": got \"-3\", expected a whole number of tokens from "
            "1 to 1000000000");
  EXPECT_EQ(error_of_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n"),
            "t: has no request, expected one a line");
  EXPECT_EQ(error_of_trace(""), "t:1: is empty, expected a line of column names");
}

TEST(TraceFile, BadJsonNamesLineAndMember) {
  const auto after_good = [](const std::string& line) {
    return error_of_trace("{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n" + line);
  };
  EXPECT_EQ(after_good("{\"timestamp\":0,\"input_length\":1}"),
            "t:2: no \"output_length\", expected a whole number of tokens from 1 to 1000000000");
  EXPECT_EQ(after_good("{\"timestamp\":0,\"input_length\":-1,\"output_length\":1}"),
            "t:2: \"input_length\": got \"-1\", expected a whole number of tokens from 1 to "
            "1000000000");
  EXPECT_EQ(after_good("{\"timestamp\":0,\"input_length\":1.5,\"output_length\":1}"),
            "t:2: \"input_length\": got \"1.5\", expected a whole number of tokens from 1 to "
            "1000000000");
  EXPECT_EQ(after_good("{\"timestamp\":\"now\",\"input_length\":1,\"output_length\":1}"),
            "t:2: \"timestamp\": got \"\\\"now\\\"\", expected a time in milliseconds, at least 0");
  EXPECT_EQ(after_good("{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}"),
            "t:2: \"timestamp\": got \"-1\", expected a time in milliseconds, at least 0");
  EXPECT_EQ(
      after_good("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1,2]}"),
      "t:2: \"hash_ids\": got 2 of them, expected at most 1, one per 512 of the 1 tokens of "
      "\"input_length\"");
  EXPECT_THAT(
      after_good("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[-1]}"),
      HasSubstr("t:2: \"hash_ids\": got \"[-1]\", expected a list of whole numbers"));
  EXPECT_THAT(after_good("{\"timestamp\":0,"), HasSubstr("t:2: got \"{\\\"timestamp\\\":0,\""));
  EXPECT_THAT(after_good("[1]"), HasSubstr("t:2: got \"[1]\", expected a JSON object"));
  EXPECT_THAT(after_good("\n{\"timestamp\":0,\"input_length\":1,\"output_length\":1}"),
              HasSubstr("t:2: got \"\", expected a JSON object"));
  EXPECT_EQ(after_good("\n \r\n"), "accepted");  // blank to the end
}

TEST(TraceFile, BadOptionsAreNamed) {
  const auto message = [](auto&& change) {
    TraceOptions options;
    change(options);
    return error_of_trace(kAzure, options);
  };
  EXPECT_THAT(message([](TraceOptions& o) { o.rate_scale = 0; }), HasSubstr("rate scale: got 0"));
  EXPECT_THAT(message([](TraceOptions& o) { o.length_scale = -1; }),
              HasSubstr("length scale: got -1"));
  EXPECT_THAT(message([](TraceOptions& o) { o.length_scale = 101; }),
              HasSubstr("length scale: got 101"));
  EXPECT_THAT(message([](TraceOptions& o) { o.max_total = 1; }), HasSubstr("context: got 1"));
  EXPECT_THAT(message([](TraceOptions& o) { o.max_requests = -1; }),
              HasSubstr("number of requests: got -1"));
}

TEST(TraceFile, ScalesMayNotOverflow) {
  TraceOptions options;
  options.length_scale = 100;
  const std::string line = R"({"timestamp":0,"input_length":10000001,"output_length":1})";
  EXPECT_EQ(error_of_trace(line, options),
            "t:1: 10000001 tokens times the length scale 100 are more than 1000000000; use a "
            "smaller scale");
  options = {};
  options.rate_scale = 1e-6;
  EXPECT_THAT(error_of_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                             "2023-11-16 00:00:00,1,1\n"
                             "2023-11-16 00:30:00,1,1\n",
                             options),
              HasSubstr("more than thirty years after the first request; use a larger rate scale"));
}

TEST(TraceFile, AMissingFileIsNamed) {
  const auto workload = read_trace("no/such/trace.csv", {});
  ASSERT_FALSE(workload);
  EXPECT_EQ(workload.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(workload.error().message, HasSubstr("no/such/trace.csv"));
}

// Real traces, which are not part of this repository.
class RealTrace : public ::testing::Test {
 protected:
  Result<Workload> read(const char* name, const TraceOptions& options = {}) {
    return read_trace(folder_ + "/" + name, options);
  }
  void SetUp() override {
    const char* shared = std::getenv("SLUICE_SHARED_DATA");
    folder_ = std::string(shared == nullptr ? "" : shared) + "/traces";
    if (shared == nullptr || !std::filesystem::exists(folder_)) {
      GTEST_SKIP() << "SLUICE_SHARED_DATA is not set or has no traces/: no real trace was read";
    }
  }
  std::string folder_;
};

TEST_F(RealTrace, AzureConversations) {
  const auto workload = read("AzureLLMInferenceTrace_conv.csv");
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->requests.size(), 19'366U);
  const Duration span = workload->requests.back().arrival - workload->requests.front().arrival;
  EXPECT_NEAR(to_seconds(span), 19'365 / 5.53, 32);  // 58 minutes
  EXPECT_EQ(workload->requests.back().prompt_tokens, 197);
  EXPECT_EQ(workload->requests.back().output_tokens, 183);
}

TEST_F(RealTrace, Mooncake) {
  const auto workload = read("mooncake_synthetic_trace.jsonl");
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->requests.size(), 3993U);
  std::set<std::uint64_t> seen;
  std::size_t pieces = 0;
  for (const WorkloadRequest& request : workload->requests) {
    pieces += request.prefix_pieces.size();
    seen.insert(request.prefix_pieces.begin(), request.prefix_pieces.end());
  }
  // Share of the pieces that came before.
  const double reuse = 1 - static_cast<double>(seen.size()) / static_cast<double>(pieces);
  EXPECT_NEAR(reuse, 0.64, 0.02);
}

TEST_F(RealTrace, ALengthFileIsNoTrace) {
  const auto workload = read("sharegpt_8k_filtered_stats_llama2_tokenizer.csv");
  ASSERT_FALSE(workload);
  EXPECT_THAT(workload.error().message, HasSubstr("give it as --lengths"));
}

}  // namespace
}  // namespace sluice
