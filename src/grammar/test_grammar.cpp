#include "grammar/test_grammar.h"

#include <gtest/gtest.h>

#include <utility>

#include "grammar/grammar_matcher.h"

namespace sluice {

GrammarVocabularyPtr test_vocabulary(const std::vector<std::string>& words) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), words.begin(), words.end());
  tokens.emplace_back();
  // Shared: see GrammarVocabularyPtr.
  return std::make_shared<GrammarVocabulary>(
      TokenTrie(tokens, static_cast<std::int32_t>(tokens.size())));
}

std::vector<std::string> test_words() {
  return {"{\"", "\":",  "\": ",  "\",",   ",\"",     ", \"", "\"}",      "\"]",      "}}",
          "]}",  "},",   "[]",    "{}",    "true",    "fal",  "se",       "null",     "name",
          "ab",  "abc",  "the",   " the",  "12",      "123",  "-1",       "0.5",      "e+",
          "\\n", "\\u",  "\\\"",  "\"a\"", "\"a\": ", "ca\"", "\"},{\"",  "aa",       "aaaa",
          "bb",  "((",   "))",    ")(",    "\xC3",    "\xA4", "\xC3\xA4", "\xE4\xBD", "x\xE4",
          "  ",  "\n\n", "hello", "the",   "]"};
}

TokenGrammarPtr compile_or_fail(const Result<Grammar>& grammar, GrammarVocabularyPtr vocabulary) {
  if (!grammar) {
    ADD_FAILURE() << grammar.error().message;
    return nullptr;
  }
  auto compiled = TokenGrammar::compile(*grammar, std::move(vocabulary));
  if (!compiled) {
    ADD_FAILURE() << compiled.error().message;
    return nullptr;
  }
  return *compiled;
}

TextFit fit(const GrammarAutomaton& automaton, std::string_view text) {
  GrammarStacks stacks(automaton);
  GrammarStacks::SetId set = stacks.enter(automaton.start());
  for (const char byte : text) {
    if (set == GrammarStacks::kDead) return TextFit::kNone;
    set = stacks.step(set, static_cast<std::uint8_t>(byte));
  }
  if (set == GrammarStacks::kDead) return TextFit::kNone;
  return stacks.ends(set) ? TextFit::kWhole : TextFit::kPrefix;
}

std::vector<std::uint32_t> reference_mask(const TokenGrammar& grammar, std::string_view text) {
  GrammarStacks stacks(grammar.automaton());
  GrammarStacks::SetId start = stacks.enter(grammar.automaton().start());
  for (const char byte : text) {
    if (start != GrammarStacks::kDead) start = stacks.step(start, static_cast<std::uint8_t>(byte));
  }
  std::vector<std::uint32_t> mask(grammar.trie().mask_words());
  for (TokenId id = 0; id < grammar.trie().vocab_size(); ++id) {
    const std::string_view bytes = grammar.trie().bytes(id);
    GrammarStacks::SetId set = bytes.empty() ? GrammarStacks::kDead : start;
    for (const char byte : bytes) {
      if (set != GrammarStacks::kDead) set = stacks.step(set, static_cast<std::uint8_t>(byte));
    }
    if (set != GrammarStacks::kDead) mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
  }
  return mask;
}

std::string checked_walk(const TokenGrammarPtr& grammar, std::uint64_t seed, int steps) {
  SplitMix64 random(seed);
  GrammarMatcher matcher;
  matcher.assign(grammar);
  std::string text;
  std::vector<std::uint32_t> mask(grammar->trie().mask_words());
  for (int step = 0; step < steps; ++step) {
    if (matcher.can_end() && random() % 4 == 0) break;
    matcher.fill(mask);
    EXPECT_EQ(mask, reference_mask(*grammar, text)) << "after " << text;
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < grammar->trie().vocab_size(); ++id) {
      if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0) allowed.push_back(id);
    }
    if (allowed.empty()) {
      EXPECT_TRUE(matcher.can_end()) << "stuck after " << text;
      break;
    }
    const TokenId token = allowed[random() % allowed.size()];
    EXPECT_TRUE(matcher.accept(token));
    text += grammar->trie().bytes(token);
  }
  EXPECT_EQ(matcher.can_end() ? TextFit::kWhole : TextFit::kPrefix,
            fit(grammar->automaton(), text));
  return text;
}

}  // namespace sluice
