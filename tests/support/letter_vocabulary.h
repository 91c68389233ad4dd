// A vocabulary for tests of grammars: token 3 is "a", token 4 "b", and so on; tokens 0 to 2 are no
// text. Header only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grammar/regex_grammar.h"
#include "grammar/token_grammar.h"

namespace sluice::test {

inline constexpr TokenId kLetterA = 3;

inline GrammarVocabularyPtr letter_vocabulary(std::int32_t vocab_size) {
  std::vector<std::string> tokens(static_cast<std::size_t>(kLetterA));
  for (char letter = 'a'; letter <= 'z'; ++letter) tokens.emplace_back(1, letter);
  for (const char* text : {"ab", "abc", "xyz", "zz"}) tokens.emplace_back(text);
  // Shared: see GrammarVocabularyPtr.
  return std::make_shared<GrammarVocabulary>(TokenTrie(tokens, vocab_size));
}

inline TokenGrammarPtr letter_grammar(const std::string& pattern,
                                      const GrammarVocabularyPtr& vocabulary) {
  return *TokenGrammar::compile(*regex_grammar(pattern), vocabulary);
}

}  // namespace sluice::test
