#include "workload/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

using ::testing::HasSubstr;

struct Stats {
  double median = 0;
  double p90 = 0;
  double deviation = 0;
  std::int32_t least = 0;
  std::int32_t greatest = 0;
};

Stats stats_of(const std::vector<RequestLengths>& lengths, std::int32_t RequestLengths::* which) {
  std::vector<std::int32_t> values;
  double sum = 0;
  double squares = 0;
  for (const RequestLengths& one : lengths) {
    const double value = one.*which;
    values.push_back(one.*which);
    sum += value;
    squares += value * value;
  }
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto at = [&](double share) {
    return static_cast<double>(values[static_cast<std::size_t>(share * n)]);
  };
  return {at(0.5), at(0.9), std::sqrt(squares / n - sum / n * (sum / n)), values.front(),
          values.back()};
}

void expect_close(double value, double expected, double share) {
  EXPECT_NEAR(value, expected, expected * share);
}

// Sarathi-Serve, table 2, with its two output deviations exchanged (docs/workloads.md).
TEST(Lengths, ShareGptIsThatOfThePaper) {
  const auto lengths = make_lengths("sharegpt", 100'000, 0, 1);
  ASSERT_TRUE(lengths);
  const Stats prompt = stats_of(*lengths, &RequestLengths::prompt_tokens);
  expect_close(prompt.median, 1730, 0.02);
  expect_close(prompt.p90, 5696, 0.02);
  expect_close(prompt.deviation, 2088, 0.02);
  const Stats output = stats_of(*lengths, &RequestLengths::output_tokens);
  expect_close(output.median, 415, 0.02);
  expect_close(output.p90, 834, 0.02);
  expect_close(output.deviation, 265, 0.02);
  EXPECT_GE(std::min(prompt.least, output.least), 1);
  for (const RequestLengths& one : *lengths) {
    ASSERT_LE(one.prompt_tokens + one.output_tokens, 8192);
  }
}

TEST(Lengths, ArxivIsThatOfThePaper) {
  const auto lengths = make_lengths("arxiv", 100'000, 0, 1);
  ASSERT_TRUE(lengths);
  const Stats prompt = stats_of(*lengths, &RequestLengths::prompt_tokens);
  expect_close(prompt.median, 7059, 0.02);
  expect_close(prompt.p90, 12985, 0.02);
  expect_close(prompt.deviation, 3638, 0.02);
  const Stats output = stats_of(*lengths, &RequestLengths::output_tokens);
  expect_close(output.median, 208, 0.02);
  expect_close(output.p90, 371, 0.02);
  expect_close(output.deviation, 101, 0.02);
  for (const RequestLengths& one : *lengths) {
    ASSERT_LE(one.prompt_tokens + one.output_tokens, 16384);
  }
}

TEST(Lengths, FixedAndUniform) {
  const auto fixed = make_lengths("fixed:512,128", 3, 0, 0);
  ASSERT_TRUE(fixed);
  for (const RequestLengths& one : *fixed) {
    EXPECT_EQ(one.prompt_tokens, 512);
    EXPECT_EQ(one.output_tokens, 128);
  }
  const auto uniform = make_lengths("uniform:10-12,1-1", 3000, 0, 0);
  ASSERT_TRUE(uniform);
  int counts[3] = {};
  for (const RequestLengths& one : *uniform) {
    ASSERT_GE(one.prompt_tokens, 10);
    ASSERT_LE(one.prompt_tokens, 12);
    ++counts[one.prompt_tokens - 10];
    ASSERT_EQ(one.output_tokens, 1);
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 120);
}

TEST(Lengths, LengthsOfASeedNeverChange) {
  const auto lengths = make_lengths("sharegpt", 3, 0, 42);
  ASSERT_TRUE(lengths);
  const std::vector<RequestLengths>& l = *lengths;
  EXPECT_EQ(l[0].prompt_tokens, 28);
  EXPECT_EQ(l[0].output_tokens, 231);
  EXPECT_EQ(l[2].prompt_tokens, 2316);
  EXPECT_EQ(l[2].output_tokens, 848);
}

TEST(Lengths, AScaleKeepsTheShapeAndAtLeastOneToken) {
  const auto whole = make_lengths("sharegpt", 200, 0, 42);
  const auto quarter = make_lengths("sharegpt", 200, 0, 42, nullptr, 0.25);
  ASSERT_TRUE(whole && quarter);
  for (std::size_t i = 0; i < whole->size(); ++i) {
    EXPECT_NEAR((*quarter)[i].prompt_tokens, 0.25 * (*whole)[i].prompt_tokens, 0.5);
    EXPECT_NEAR((*quarter)[i].output_tokens, 0.25 * (*whole)[i].output_tokens, 0.5);
  }
  const auto least = make_lengths("fixed:3,1", 1, 0, 0, nullptr, 0.001);
  ASSERT_TRUE(least);
  EXPECT_EQ((*least)[0].prompt_tokens, 1);
  EXPECT_EQ((*least)[0].output_tokens, 1);
  std::int64_t shortened = 0;
  ASSERT_TRUE(make_lengths("fixed:300,100", 5, 100, 0, &shortened, 0.25));
  EXPECT_EQ(shortened, 0) << "scaled before it is shortened";
}

TEST(Lengths, BadScalesAreNamed) {
  for (const double scale : {0.0, -1.0, 101.0}) {
    const auto made = make_lengths("sharegpt", 1, 0, 0, nullptr, scale);
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr("length scale: got"));
  }
  const auto many = make_lengths("fixed:10000001,1", 1, 0, 0, nullptr, 100);
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message, HasSubstr("use a smaller scale"));
}

TEST(Lengths, LongRequestsAreShortenedInProportion) {
  const RequestLengths half = shorten({3000, 1000}, 2000);
  EXPECT_EQ(half.prompt_tokens, 1500);
  EXPECT_EQ(half.output_tokens, 500);
  const RequestLengths fits = shorten({3000, 1000}, 4000);
  EXPECT_EQ(fits.prompt_tokens, 3000);
  EXPECT_EQ(fits.output_tokens, 1000);
  for (const RequestLengths extreme :
       {RequestLengths{1'000'000'000, 1}, RequestLengths{1, 1'000'000'000}}) {
    for (const int max_total : {2, 3, 100}) {
      const RequestLengths made = shorten(extreme, max_total);
      EXPECT_GE(std::min(made.prompt_tokens, made.output_tokens), 1);
      EXPECT_LE(made.prompt_tokens + made.output_tokens, max_total);
    }
  }
  const auto lengths = make_lengths("arxiv", 1000, 4096, 0);
  ASSERT_TRUE(lengths);
  for (const RequestLengths& one : *lengths) {
    ASSERT_LE(one.prompt_tokens + one.output_tokens, 4096);
    ASSERT_GE(one.output_tokens, 1);
  }
}

std::string error_of(std::string_view spec, std::int64_t count = 1, std::int32_t max_total = 0) {
  const auto lengths = make_lengths(spec, count, max_total, 0);
  return lengths ? "accepted" : lengths.error().message;
}

TEST(Lengths, BadSpecsAreNamed) {
  for (const char* spec : {"fixed:", "fixed:5", "fixed:0,1", "fixed:1,-1", "fixed:1-2,3",
                           "fixed:1,2,3", "fixed:1,99999999999"}) {
    EXPECT_THAT(error_of(spec), HasSubstr("expected fixed:P,O")) << spec;
    EXPECT_THAT(error_of(spec), HasSubstr(spec));
  }
  for (const char* spec : {"uniform:5-4,1-2", "uniform:1-2", "uniform:0-2,1-2", "uniform:a-b,1"}) {
    EXPECT_THAT(error_of(spec), HasSubstr("expected uniform:P1-P2,O1-O2")) << spec;
  }
  EXPECT_THAT(error_of("shargpt"), HasSubstr("lengths \"shargpt\": no such name (sharegpt, arxiv, "
                                             "fixed:P,O, uniform:P1-P2,O1-O2) and no such file"));
  EXPECT_THAT(error_of("sharegpt", 0), HasSubstr("number of requests: got 0"));
  EXPECT_THAT(error_of("sharegpt", 1, 1), HasSubstr("context: got 1 tokens"));
}

class LengthFile : public ::testing::Test {
 protected:
  std::string write(std::string_view text) {
    path_ = ::testing::TempDir() + "sluice_lengths_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  // The error of a file with this text, which begins with the file's path.
  std::string error_behind_path(std::string_view text) {
    const std::string error = error_of(write(text));
    return error.starts_with(path_) ? error.substr(path_.size()) : "without path: " + error;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
};

TEST_F(LengthFile, RowsAreShuffledAndRepeated) {
  std::string text = "num_prefill_tokens,other,num_decode_tokens\n";
  for (int i = 1; i <= 20; ++i) {
    text += std::to_string(i) + ",x," + std::to_string(i + 100) + "\n";
  }
  const auto lengths = make_lengths(write(text), 50, 0, 3);
  ASSERT_TRUE(lengths) << lengths.error().message;
  std::vector<int> seen;
  for (std::size_t i = 0; i < 50; ++i) {
    const RequestLengths& one = (*lengths)[i];
    EXPECT_EQ(one.output_tokens, one.prompt_tokens + 100);
    EXPECT_EQ(one.prompt_tokens, (*lengths)[i % 20].prompt_tokens);
    if (i < 20) seen.push_back(one.prompt_tokens);
  }
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen.front(), 1);
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  const auto other = make_lengths(path_, 50, 0, 4);
  ASSERT_TRUE(other);
  EXPECT_NE((*other)[0].prompt_tokens * 100 + (*other)[1].prompt_tokens,
            (*lengths)[0].prompt_tokens * 100 + (*lengths)[1].prompt_tokens);
}

TEST_F(LengthFile, ErrorsNameFileLineAndColumn) {
  EXPECT_EQ(error_behind_path("num_prefill_tokens,num_decode_tokens\n5,6\n7,-8\n"),
            ":3: column \"num_decode_tokens\": got \"-8\", expected a whole number of tokens from "
            "1 to 1000000000");
  EXPECT_EQ(error_behind_path("num_prefill_tokens\n5\n"),
            ":1: no column \"num_decode_tokens\"; a length file has num_prefill_tokens and "
            "num_decode_tokens");
  EXPECT_THAT(error_behind_path("TIMESTAMP,ContextTokens,GeneratedTokens\n"),
              HasSubstr("give it as --trace"));
  EXPECT_EQ(error_behind_path("num_prefill_tokens,num_decode_tokens\n"),
            ":1: ends without a row of lengths");
}

TEST(LengthFileReal, ShareGptOfTheAuthors) {
  const char* shared = std::getenv("SLUICE_SHARED_DATA");
  if (shared == nullptr) GTEST_SKIP() << "SLUICE_SHARED_DATA is not set: no real lengths were read";
  const std::string path =
      std::string(shared) + "/traces/sharegpt_8k_filtered_stats_llama2_tokenizer.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto real = make_lengths(path, 30'731, 0, 0);
  ASSERT_TRUE(real) << real.error().message;
  const auto ours = make_lengths("sharegpt", 30'731, 0, 0);
  ASSERT_TRUE(ours);
  for (const auto which : {&RequestLengths::prompt_tokens, &RequestLengths::output_tokens}) {
    const Stats theirs = stats_of(*real, which);
    const Stats made = stats_of(*ours, which);
    expect_close(made.median, theirs.median, 0.03);
    expect_close(made.p90, theirs.p90, 0.03);
    expect_close(made.deviation, theirs.deviation, 0.03);
  }
}

}  // namespace
}  // namespace sluice
