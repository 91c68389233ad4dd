#include "tokenizer/tokenize_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>

#include "base/json.h"
#include "tokenizer/test_tokenizers.h"

namespace sluice {
namespace {

TEST(TokenizeLines, AnswersEachLine) {
  const auto tokenizer = Tokenizer::from_json(dump_json(byte_level_json()));
  ASSERT_TRUE(tokenizer);
  std::istringstream in("\"hello\"\n\"\\u20ac\"\n\"\"\n");
  std::ostringstream out;
  EXPECT_TRUE(tokenize_lines(*tokenizer, {}, in, out));
  EXPECT_EQ(out.str(), "[259]\n[226,130,172]\n[]\n");
  std::istringstream back(out.str() + "[-1,1e99,99999999999]\n");
  std::ostringstream texts;
  const auto status = detokenize_lines(*tokenizer, SkipSpecialTokens::kNo, back, texts);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("line 4"));
  EXPECT_EQ(texts.str(), "\"hello\"\n\"\u20ac\"\n\"\"\n");
}

TEST(TokenizeLines, NamesTheBrokenLine) {
  const auto tokenizer = Tokenizer::from_json(dump_json(byte_level_json()));
  ASSERT_TRUE(tokenizer);
  std::istringstream in("\"a\"\n5\n");
  std::ostringstream out;
  const auto status = tokenize_lines(*tokenizer, {}, in, out);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("line 2: not a JSON string"));
  EXPECT_EQ(out.str(), "[97]\n");
}

// One line can be read, as a file on a disk that fails.
class BrokenFile final : public std::streambuf {
 public:
  explicit BrokenFile(std::string line) : line_(std::move(line)) {
    setg(line_.data(), line_.data(), line_.data() + line_.size());
  }

 private:
  int_type underflow() override { throw std::ios_base::failure("input/output error"); }
  std::string line_;
};

TEST(TokenizeLines, InputThatBreaksIsNotItsEnd) {
  const auto tokenizer = Tokenizer::from_json(dump_json(byte_level_json()));
  ASSERT_TRUE(tokenizer);
  BrokenFile strings("\"a\"\n");
  std::istream in(&strings);
  std::ostringstream out;
  const auto status = tokenize_lines(*tokenizer, {}, in, out);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("cannot be read"));
  EXPECT_EQ(out.str(), "[97]\n");
  BrokenFile arrays("[97]\n");
  std::istream back(&arrays);
  EXPECT_FALSE(detokenize_lines(*tokenizer, SkipSpecialTokens::kNo, back, out));
}

}  // namespace
}  // namespace sluice
