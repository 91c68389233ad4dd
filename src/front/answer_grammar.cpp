#include "front/answer_grammar.h"

#include <string>
#include <utility>
#include <vector>

#include "front/tool_grammar.h"

namespace sluice {
namespace {

// The bytes of all tokens. Special tokens are no text (kSpecialTokenMark).
TokenTrie token_trie(const Tokenizer& tokenizer, std::int32_t vocab_size) {
  std::vector<std::string> tokens(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    tokens[id] = grammar_bytes(tokenizer, static_cast<TokenId>(id));
  }
  return TokenTrie(tokens, vocab_size);
}

}  // namespace

Result<TokenGrammarPtr> compile_answer_grammar(const ServedModel& model, GrammarSpec spec,
                                               const ReasoningFormat* reasoning, bool inside,
                                               const StopCheck& stop) {
  if (reasoning != nullptr) {
    ReasoningLead lead;
    ASSIGN_OR_RETURN(lead.begin, grammar_literal(model.tokenizer, reasoning->begin));
    ASSIGN_OR_RETURN(lead.end, grammar_literal(model.tokenizer, reasoning->end));
    lead.inside = inside;
    spec.lead = std::move(lead);
  }
  return model.grammars->compile(
      spec, [&] { return token_trie(model.tokenizer, model.limits.vocab_size); }, stop);
}

Result<TokenGrammarPtr> compile_output_grammar(const Tokenizer& tokenizer, std::int32_t vocab_size,
                                               const GrammarSpec& spec) {
  GrammarCompiler compiler;
  return compiler.compile(spec, [&] { return token_trie(tokenizer, vocab_size); });
}

}  // namespace sluice
