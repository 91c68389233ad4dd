#include "grammar/grammar_compiler.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/content_hash.h"
#include "grammar/gbnf_grammar.h"
#include "grammar/json_schema.h"
#include "grammar/marked_text.h"
#include "grammar/regex_grammar.h"

namespace sluice {
namespace {

Result<Grammar> choice_grammar(const JsonValue& choices) {
  Grammar grammar;
  const JsonValue::Array* texts = choices.array();
  if (texts == nullptr || texts->empty()) {
    return invalid_argument("must be an array with at least one string");
  }
  if (texts->size() > GrammarCompiler::kMaxChoices) {
    return invalid_argument(fmt::format("has {} choices; at most {} are served", texts->size(),
                                        GrammarCompiler::kMaxChoices));
  }
  std::vector<ExprId> ways;
  for (const JsonValue& text : *texts) {
    if (text.string() == nullptr || text.string()->empty()) {
      return invalid_argument("must be an array of strings that are not empty");
    }
    ways.push_back(grammar.literal(*text.string()));
  }
  grammar.set_start(grammar.add_rule("choice", grammar.choice(std::move(ways))));
  return grammar;
}

Result<Grammar> answer_grammar(const GrammarSpec& spec) {
  switch (spec.kind) {
    case GrammarKind::kJsonSchema: return json_schema_grammar(spec.json);
    case GrammarKind::kJsonObject: return json_object_grammar();
    case GrammarKind::kRegex: return regex_grammar(spec.text);
    case GrammarKind::kChoice: return choice_grammar(spec.json);
    case GrammarKind::kTagged: return tagged_grammar(spec.tagged);
    case GrammarKind::kGbnf: break;
  }
  return gbnf_grammar(spec.text);
}

void add_lead(const ReasoningLead& lead, Grammar& grammar) {
  const ExprId blanks = grammar.repeat(grammar.one_of({{'\n', '\n'}, {' ', ' '}}), 0, 4);
  const ExprId reasoning = text_with_marker(grammar, lead.end, blanks);
  const ExprId before =
      lead.inside ? reasoning
                  : grammar.optional(grammar.sequence({grammar.literal(lead.begin), reasoning}));
  const ExprId answer = grammar.call(grammar.start());
  grammar.set_start(grammar.add_rule("answer", grammar.sequence({before, answer})));
}

Hash128 key_of(const GrammarSpec& spec) {
  ContentHasher hasher;
  hasher.update_part(fmt::format("{}", static_cast<int>(spec.kind)));
  hasher.update_part(spec.text);
  hasher.update_part(spec.begin);
  if (spec.calls) {
    hasher.update_part("calls");
    hasher.update_part(spec.calls_text);
  }
  if (spec.lead) {
    hasher.update_part(spec.lead->begin);
    hasher.update_part(spec.lead->end);
    hasher.update_part(spec.lead->inside ? "inside" : "before");
  }
  return hasher.digest();
}

}  // namespace

Result<Grammar> make_grammar(const GrammarSpec& spec) {
  ASSIGN_OR_RETURN(Grammar grammar, answer_grammar(spec));
  if (!spec.begin.empty()) {
    const ExprId answer = grammar.call(grammar.start());
    grammar.set_start(
        grammar.add_rule("begun answer", grammar.sequence({grammar.literal(spec.begin), answer})));
  }
  if (spec.calls) {
    ASSIGN_OR_RETURN(const Grammar calls, tagged_grammar(*spec.calls));
    const ExprId answer = grammar.call(grammar.start());
    const ExprId called = grammar.call(grammar.embed(calls));
    grammar.set_start(grammar.add_rule("answer or calls", grammar.choice({answer, called})));
  }
  if (spec.lead) add_lead(*spec.lead, grammar);
  return grammar;
}

Result<TokenGrammarPtr> GrammarCompiler::compile(const GrammarSpec& spec,
                                                 FunctionRef<TokenTrie()> tokens,
                                                 const StopCheck& stop) {
  const Hash128 key = key_of(spec);
  if (TokenGrammarPtr known = find(key)) return known;
  ASSIGN_OR_RETURN(const Grammar grammar, make_grammar(spec));
  ASSIGN_OR_RETURN(TokenGrammarPtr made, TokenGrammar::compile(grammar, vocabulary(tokens), stop));
  if (makes_images_) static_cast<void>(made->image());
  keep(key, made);
  return made;
}

GrammarVocabularyPtr GrammarCompiler::vocabulary(FunctionRef<TokenTrie()> tokens) {
  const std::lock_guard lock(vocabulary_mutex_);
  // Shared: see GrammarVocabularyPtr.
  if (!vocabulary_) vocabulary_ = std::make_shared<GrammarVocabulary>(tokens());
  return vocabulary_;
}

TokenGrammarPtr GrammarCompiler::find(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, at->second);
  return at->second->second;
}

void GrammarCompiler::keep(const Hash128& key, const TokenGrammarPtr& grammar) {
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  recent_.emplace_front(key, grammar);
  by_key_[key] = recent_.begin();
  if (recent_.size() <= kMaxGrammars) return;
  by_key_.erase(recent_.back().first);
  recent_.pop_back();
}

}  // namespace sluice
