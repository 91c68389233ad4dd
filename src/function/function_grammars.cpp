#include "function/function_grammars.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "grammar/grammar_image.h"

namespace sluice {

Status FunctionGrammars::start(const VocabularyFrame& frame, std::int32_t vocab_size) {
  if (frame.tokens.size() > static_cast<std::size_t>(vocab_size)) {
    return invalid_argument(
        fmt::format("a function got a vocabulary of {} tokens, its model has {}",
                    frame.tokens.size(), vocab_size));
  }
  // Shared: see GrammarVocabularyPtr.
  vocabulary_ = std::make_shared<GrammarVocabulary>(TokenTrie(frame.tokens, vocab_size));
  return {};
}

Status FunctionGrammars::put(const GrammarFrame& frame) {
  if (vocabulary_ == nullptr) return invalid_argument("a function got a grammar and no vocabulary");
  ASSIGN_OR_RETURN(TokenGrammarPtr grammar,
                   decode_grammar(std::as_bytes(std::span(frame.image)), vocabulary_));
  grammars_.at(static_cast<std::size_t>(frame.place)) = std::move(grammar);
  return {};
}

Result<TokenGrammarPtr> FunctionGrammars::find(std::int32_t place) const {
  if (place < 0) return TokenGrammarPtr();
  TokenGrammarPtr grammar = grammars_.at(static_cast<std::size_t>(place));
  if (grammar == nullptr) {
    return invalid_argument(fmt::format("a request names the empty place {} for grammars", place));
  }
  return grammar;
}

}  // namespace sluice
