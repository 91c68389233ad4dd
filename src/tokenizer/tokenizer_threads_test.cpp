// One tokenizer, many threads: run under the thread sanitizer in CI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

TEST(TokenizerThreads, ShareOneTokenizer) {
  const auto tokenizer = Tokenizer::from_json(dump_json(byte_level_json()));
  ASSERT_TRUE(tokenizer);
  const std::string text = "hello world, hello  12 \u00e9<|end|>";
  const auto expected = tokenizer->encode(text);
  ASSERT_TRUE(expected);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const auto ids = tokenizer->encode(text);
        const bool same =
            ids && *ids == *expected && tokenizer->decode(*ids, SkipSpecialTokens::kNo) == text;
        count += same ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace sluice
