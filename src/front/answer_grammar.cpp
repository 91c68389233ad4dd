#include "front/answer_grammar.h"

#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

// The bytes of all tokens. Special tokens are no text, except for the markers of reasoning.
TokenTrie token_trie(const ServedModel& model) {
  std::vector<std::string> tokens(static_cast<std::size_t>(model.tokenizer.vocab_size()));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const std::string_view text = model.tokenizer.token_text(token);
    const bool marker =
        model.reasoning_format != nullptr &&
        (text == model.reasoning_format->begin || text == model.reasoning_format->end);
    if (marker || !model.tokenizer.is_special(token)) {
      tokens[id] = model.tokenizer.token_bytes(token);
    }
  }
  return TokenTrie(tokens, model.limits.vocab_size);
}

}  // namespace

Result<TokenGrammarPtr> compile_answer_grammar(const ServedModel& model, GrammarSpec spec,
                                               const ReasoningFormat* reasoning, bool inside,
                                               const StopCheck& stop) {
  if (reasoning != nullptr) {
    spec.lead = ReasoningLead{std::string(reasoning->begin), std::string(reasoning->end), inside};
  }
  return model.grammars->compile(spec, [&] { return token_trie(model); }, stop);
}

}  // namespace sluice
