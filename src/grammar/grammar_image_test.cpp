// Images: a grammar that was read masks as the one that was written, and wrong images are refused.
#include "grammar/grammar_image.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json_document.h"
#include "base/rng.h"
#include "grammar/gbnf_grammar.h"
#include "grammar/grammar_matcher.h"
#include "grammar/json_schema.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

std::vector<Result<Grammar>> grammars() {
  std::vector<Result<Grammar>> made;
  made.push_back(regex_grammar("(ab?c|a+b){2,5}"));
  made.push_back(regex_grammar(".{0,40}ä"));
  made.push_back(gbnf_grammar("root ::= \"(\" root* \")\" | [äö你]+"));
  made.push_back(gbnf_grammar("root ::= (x y?)*\nx ::= \"a\"? \"b\"?\ny ::= \"aa\" | x \"12\""));
  made.push_back(json_object_grammar());
  return made;
}

TEST(GrammarImage, AGrammarThatWasReadMasksAsTheOneThatWasWritten) {
  const auto vocabulary = test_vocabulary(test_words());
  for (const Result<Grammar>& grammar : grammars()) {
    const TokenGrammarPtr compiled = compile_or_fail(grammar, vocabulary);
    ASSERT_NE(compiled, nullptr);
    const std::vector<std::byte> image = encode_grammar(*compiled);
    EXPECT_LE(image.size(), grammar_image_bound(*compiled));
    // Its vocabulary is that of another process.
    const auto read = decode_grammar(image, test_vocabulary(test_words()));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(encode_grammar(**read), image);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      // The same masks give the same walk; each mask is compared with the slow reference.
      EXPECT_EQ(checked_walk(*read, seed, 50), checked_walk(compiled, seed, 50));
    }
    EXPECT_GT((*read)->late_masks(), 0U);
  }
}

TEST(GrammarImage, EveryCutAndEveryTailIsRefused) {
  const auto vocabulary = test_vocabulary({});
  const TokenGrammarPtr compiled = compile_or_fail(regex_grammar("(ab?c){1,3}"), vocabulary);
  std::vector<std::byte> image = encode_grammar(*compiled);
  for (std::size_t size = 0; size < image.size(); ++size) {
    EXPECT_FALSE(decode_grammar(std::span(image).first(size), vocabulary)) << size;
  }
  image.push_back(std::byte{0});
  EXPECT_FALSE(decode_grammar(image, vocabulary));
  image.pop_back();
  image[0] = std::byte{99};
  EXPECT_NE(decode_grammar(image, vocabulary).error().message.find("version"), std::string::npos);
}

// Changed bytes are refused, or make a grammar whose tables can be used.
TEST(GrammarImage, ChangedBytesNeverReadOutsideOfTheTables) {
  const auto vocabulary = test_vocabulary(test_words());
  const TokenGrammarPtr compiled = compile_or_fail(
      gbnf_grammar("root ::= a \"bb\" | \"x\" b{0,9}\na ::= \"a\" a | b\nb ::= [0-9]"), vocabulary);
  const std::vector<std::byte> image = encode_grammar(*compiled);
  SplitMix64 random(3);
  int used = 0;
  std::vector<std::uint32_t> mask(vocabulary->trie.mask_words());
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> changed = image;
    changed[random.below(changed.size())] = static_cast<std::byte>(random.below(256));
    const auto read = decode_grammar(changed, vocabulary);
    if (!read) continue;
    ++used;
    GrammarMatcher matcher;
    matcher.assign(*read);
    for (const char byte : std::string("a5bbx12")) {
      matcher.fill(mask);
      if (!matcher.accept(static_cast<unsigned char>(byte))) break;
    }
  }
  EXPECT_GT(used, 100);
}

}  // namespace
}  // namespace sluice
