// Structured output in functions: the tokens of an engine here with the same grammar, more grammars
// than a function has places for, and the next process after a death.
#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/engine_fixture.h"
#include "tests/support/function_fixture.h"
#include "tests/support/letter_vocabulary.h"

namespace sluice {
namespace {

using test::FunctionClient;

class FunctionGrammarTest : public test::FunctionFixture {
 protected:
  void SetUp() override {
    test::FunctionFixture::SetUp();
    vocabulary_ = test::letter_vocabulary(options().vocab_size);
  }

  static Request request(RequestId id, TokenGrammarPtr grammar) {
    Request made = test::greedy_request(id, {5, 6, 7, 8}, 14);
    made.sampling.temperature = 1.0F;
    made.sampling.seed = id;
    made.sampling.ignore_eos = false;
    made.sampling.grammar = std::move(grammar);
    return made;
  }
  TokenGrammarPtr grammar(const std::string& pattern) const {
    return test::letter_grammar(pattern, vocabulary_);
  }

  GrammarVocabularyPtr vocabulary_;
};

TEST_F(FunctionGrammarTest, TokensAreThoseOfAnEngineHere) {
  FunctionClient client(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready());
  ASSERT_FALSE(client.loop().failure()) << client.loop().failure()->message;
  const TokenGrammarPtr grammars[] = {grammar("(ab?c|[d-k]+z){2,4}"), nullptr,
                                      grammar("[a-m]{3,9}(xyz)*"),
                                      // Most tokens are forced.
                                      grammar("abcabcabc[de]fghfghfgh")};
  std::set<std::vector<TokenId>> answers;
  RequestId id = 0;
  for (int round = 0; round < 3; ++round) {
    for (const TokenGrammarPtr& one : grammars) {
      const Request made = request(++id, one);
      ASSERT_TRUE(client.loop().submit(made));
      const auto answer = client.wait_for_answer(id);
      EXPECT_EQ(answer.tokens, expected(made)) << "request " << id;
      EXPECT_NE(answer.reason, FinishReason::kError);
      answers.insert(answer.tokens);
    }
  }
  EXPECT_GT(answers.size(), 8U);
}

TEST_F(FunctionGrammarTest, MoreGrammarsThanPlacesTakeTurns) {
  FunctionClient client(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready());
  const pid_t process = *client.loop().ready_process();
  std::vector<TokenGrammarPtr> grammars;
  for (std::int32_t i = 0; i < kGrammarPlaces + 4; ++i) {
    grammars.push_back(grammar("a{" + std::to_string(1 + i % 5) + "}" +
                               std::string(1, static_cast<char>('b' + i)) + "[x-z]"));
  }
  RequestId id = 0;
  for (int round = 0; round < 2; ++round) {
    for (const TokenGrammarPtr& one : grammars) {
      const Request made = request(++id, one);
      ASSERT_TRUE(client.loop().submit(made));
      EXPECT_EQ(client.wait_for_answer(id).tokens, expected(made)) << "request " << id;
    }
  }
  EXPECT_EQ(client.loop().ready_process(), process);
}

TEST_F(FunctionGrammarTest, TheNextProcessGetsTheGrammarToo) {
  FunctionClient client(backbone_, *turns_, options());
  ASSERT_TRUE(client.wait_until_ready());
  const TokenGrammarPtr one = grammar("[a-f]{2,6}z");
  Request made = request(1, one);
  ASSERT_TRUE(client.loop().submit(made));
  const auto tokens = client.wait_for_answer(1).tokens;
  const pid_t process = *client.loop().ready_process();
  ASSERT_EQ(kill(process, SIGKILL), 0);
  ASSERT_TRUE(client.wait_for([&] {
    const auto next = client.loop().ready_process();
    return next && *next != process;
  }));
  made.id = 2;  // the same seed
  ASSERT_TRUE(client.loop().submit(made));
  EXPECT_EQ(client.wait_for_answer(2).tokens, tokens);
}

}  // namespace
}  // namespace sluice
