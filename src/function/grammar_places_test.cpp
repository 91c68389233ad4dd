#include "function/grammar_places.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "function/function_grammars.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

TEST(GrammarPlaces, TheLeastRecentlyUsedGrammarGivesItsPlaceAway) {
  const auto vocabulary = test_vocabulary({});
  std::vector<TokenGrammarPtr> grammars;
  for (std::int32_t i = 0; i <= kGrammarPlaces; ++i) {
    grammars.push_back(compile_or_fail(regex_grammar("a{" + std::to_string(i) + "}"), vocabulary));
  }
  GrammarPlaces places;
  for (std::int32_t i = 0; i < kGrammarPlaces; ++i) {
    const auto place = places.take(grammars[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(place.is_new);
    EXPECT_EQ(place.new_vocabulary, i == 0);
  }
  const std::int32_t first = places.take(grammars[0]).index;
  EXPECT_FALSE(places.take(grammars[0]).is_new);
  const std::int32_t second = places.take(grammars[1]).index;
  EXPECT_NE(first, second);
  // The third one is the oldest now.
  EXPECT_TRUE(places.take(grammars.back()).is_new);
  EXPECT_FALSE(places.contains(grammars[2]));
  EXPECT_TRUE(places.contains(grammars[0]) && places.contains(grammars[1]));
  EXPECT_EQ(places.take(grammars[0]).index, first);

  // Another vocabulary goes before the first of its grammars, and back.
  const auto other = compile_or_fail(regex_grammar("b"), test_vocabulary({"bb"}));
  EXPECT_TRUE(places.take(other).new_vocabulary);
  EXPECT_FALSE(places.take(other).new_vocabulary);
  EXPECT_TRUE(places.take(grammars[2]).new_vocabulary);
  places.clear();
  EXPECT_FALSE(places.contains(other));
  EXPECT_TRUE(places.take(grammars[0]).new_vocabulary);
}

TEST(FunctionGrammars, FramesOutOfOrderAreRefused) {
  const auto grammar = compile_or_fail(regex_grammar("a+b"), test_vocabulary({"ab"}));
  const VocabularyFrame words = vocabulary_frame(grammar->trie());
  FunctionGrammars grammars;
  EXPECT_FALSE(grammars.put(grammar_frame(*grammar, 0)));
  EXPECT_FALSE(grammars.start(words, 256));  // it has 258
  ASSERT_TRUE(grammars.start(words, 300));
  EXPECT_FALSE(grammars.find(0));
  EXPECT_FALSE(grammars.put({0, "noise"}));
  ASSERT_TRUE(grammars.put(grammar_frame(*grammar, 3)));
  EXPECT_FALSE(grammars.find(0));
  EXPECT_EQ(*grammars.find(-1), nullptr);
  ASSERT_NE(*grammars.find(3), nullptr);
  EXPECT_EQ((*grammars.find(3))->trie().vocab_size(), 300);
  EXPECT_EQ((*grammars.find(3))->trie().bytes(256), "ab");
}

TEST(FunctionGrammars, AVocabularyWhoseTokensDoNotCoverItsTextIsRefused) {
  FunctionGrammars grammars;
  ASSERT_TRUE(grammars.start({"abc", {0, 1, 1, 3}}, 3));
  ASSERT_TRUE(grammars.start({"", {0}}, 3));
  for (const std::vector<std::uint32_t>& begins :
       {std::vector<std::uint32_t>{}, {0, 1}, {1, 3}, {0, 2, 1, 3}, {0, 4}, {0, 4, 3}}) {
    EXPECT_FALSE(grammars.start({"abc", begins}, 3));
  }
}

}  // namespace
}  // namespace sluice
