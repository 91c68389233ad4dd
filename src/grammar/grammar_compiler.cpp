#include "grammar/grammar_compiler.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/content_hash.h"
#include "grammar/gbnf_grammar.h"
#include "grammar/json_schema.h"
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
    case GrammarKind::kGbnf: break;
  }
  return gbnf_grammar(spec.text);
}

// The number of characters at the start of `marker` that the text ends with, once `next` follows
// the first `matched` ones.
std::size_t matched_after(std::string_view marker, std::size_t matched, char next) {
  const std::string text = std::string(marker.substr(0, matched)) + next;
  std::size_t length = text.size();
  while (!marker.starts_with(std::string_view(text).substr(text.size() - length))) --length;
  return length;
}

// Any text up to the first `marker` and with it. A rule for each part of the marker that the text
// may end with. REQUIRES: an ASCII marker, not empty.
ExprId text_up_to(Grammar& grammar, std::string_view marker) {
  std::vector<RuleId> rules;
  for (std::size_t i = 0; i < marker.size(); ++i) rules.push_back(grammar.add_rule("reasoning"));
  for (std::size_t i = 0; i < marker.size(); ++i) {
    std::vector<ExprId> ways;
    CodePointSet known;
    for (const char next : marker) {
      const auto c = static_cast<std::uint32_t>(static_cast<unsigned char>(next));
      if (!intersection(normalized(known), {{c, c}}).empty()) continue;
      known.push_back({c, c});
      const std::size_t matched = matched_after(marker, i, next);
      const ExprId character = grammar.one_of({{c, c}});
      ways.push_back(matched == marker.size()
                         ? character
                         : grammar.sequence({character, grammar.call(rules[matched])}));
    }
    ways.push_back(
        grammar.sequence({grammar.one_of(complement(known)), grammar.call(rules.front())}));
    grammar.define(rules[i], grammar.choice(std::move(ways)));
  }
  return grammar.call(rules.front());
}

void add_lead(const ReasoningLead& lead, Grammar& grammar) {
  const ExprId blanks = grammar.repeat(grammar.one_of({{'\n', '\n'}, {' ', ' '}}), 0, 4);
  const ExprId reasoning = grammar.sequence({text_up_to(grammar, lead.end), blanks});
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
