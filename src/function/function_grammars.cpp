#include "function/function_grammars.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar_image.h"

namespace sluice {
namespace {

Result<std::vector<std::string>> tokens_of(const VocabularyFrame& frame) {
  const std::vector<std::uint32_t>& begins = frame.begins;
  if (begins.empty() || begins.front() != 0 || begins.back() != frame.text.size() ||
      !std::ranges::is_sorted(begins)) {
    return invalid_argument("a function got a vocabulary whose tokens do not cover its text");
  }
  std::vector<std::string> tokens;
  tokens.reserve(begins.size() - 1);
  for (std::size_t id = 0; id + 1 < begins.size(); ++id) {
    tokens.push_back(frame.text.substr(begins[id], begins[id + 1] - begins[id]));
  }
  return tokens;
}

}  // namespace

Status FunctionGrammars::start(const VocabularyFrame& frame, std::int32_t vocab_size) {
  ASSIGN_OR_RETURN(const std::vector<std::string> tokens, tokens_of(frame));
  if (tokens.size() > static_cast<std::size_t>(vocab_size)) {
    return invalid_argument(fmt::format(
        "a function got a vocabulary of {} tokens, its model has {}", tokens.size(), vocab_size));
  }
  // Shared: see GrammarVocabularyPtr.
  vocabulary_ = std::make_shared<GrammarVocabulary>(TokenTrie(tokens, vocab_size));
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
