// FunctionGrammars: the grammars that a function process has got, by place, over the vocabulary
// that came before them. They are as the server compiled them; their masks are made here, when a
// sequence first needs them. Errors, all kInvalidArgument: of the server, which never sends such
// frames.
// Threads: one owner. Memory: kGrammarPlaces grammars, beside those that running requests hold.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"
#include "function/frames.h"
#include "grammar/token_grammar.h"

namespace sluice {

class FunctionGrammars {
 public:
  // Grammars that came before keep the vocabulary before.
  Status start(const VocabularyFrame& frame, std::int32_t vocab_size);
  Status put(const GrammarFrame& frame);
  // Null for place -1.
  Result<TokenGrammarPtr> find(std::int32_t place) const;

 private:
  GrammarVocabularyPtr vocabulary_;
  std::array<TokenGrammarPtr, kGrammarPlaces> grammars_;
};

}  // namespace sluice
