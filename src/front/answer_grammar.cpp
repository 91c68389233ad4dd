#include "front/answer_grammar.h"

#include <string>
#include <utility>
#include <vector>

#include "front/tool_grammar.h"

namespace sluice {
namespace {

// The bytes of all tokens. Special tokens are no text (kSpecialTokenMark), except for the markers
// of reasoning.
TokenTrie token_trie(const Tokenizer& tokenizer, std::int32_t vocab_size,
                     const ReasoningFormat* reasoning) {
  std::vector<std::string> tokens(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const std::string_view text = tokenizer.token_text(token);
    const bool marker =
        reasoning != nullptr && (text == reasoning->begin || text == reasoning->end);
    tokens[id] = marker ? tokenizer.token_bytes(token) : grammar_bytes(tokenizer, token);
  }
  return TokenTrie(tokens, vocab_size);
}

}  // namespace

Result<TokenGrammarPtr> compile_answer_grammar(const ServedModel& model, GrammarSpec spec,
                                               const ReasoningFormat* reasoning, bool inside,
                                               const StopCheck& stop) {
  if (reasoning != nullptr) {
    spec.lead = ReasoningLead{std::string(reasoning->begin), std::string(reasoning->end), inside};
  }
  return model.grammars->compile(
      spec,
      [&] { return token_trie(model.tokenizer, model.limits.vocab_size, model.reasoning_format); },
      stop);
}

Result<TokenGrammarPtr> compile_output_grammar(const Tokenizer& tokenizer, std::int32_t vocab_size,
                                               const GrammarSpec& spec) {
  GrammarCompiler compiler;
  return compiler.compile(spec, [&] { return token_trie(tokenizer, vocab_size, nullptr); });
}

}  // namespace sluice
