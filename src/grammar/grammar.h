// Grammar: the one form of everything that constrains an answer. Regular expressions, GBNF, lists
// of choices and JSON schemas all become a grammar: rules whose bodies are expressions over bytes.
// GrammarAutomaton compiles it.
// Expressions form a tree by ids; an expression used in two places is compiled twice. Rules may
// call each other, also recursively.
// Values: plain; one thread at a time. The makers of grammars limit their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

using ExprId = std::int32_t;
using RuleId = std::int32_t;

inline constexpr std::uint32_t kLastCodePoint = 0x10FFFF;

// Code points, both ends included.
struct CodePointRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};
using CodePointSet = std::vector<CodePointRange>;

// Sorted, without overlaps and without surrogates.
CodePointSet normalized(CodePointSet set);
CodePointSet complement(const CodePointSet& set);
// REQUIRES: both sets are normalized.
CodePointSet intersection(const CodePointSet& a, const CodePointSet& b);

// An item of Grammar::list().
struct ListItem {
  ExprId expr = 0;
  bool required = true;
  bool repeats = false;  // any number of times
};

class Grammar {
 public:
  enum class Kind : std::uint8_t {
    kNothing,   // matches no text, not even the empty one
    kLiteral,   // `text`, bytes
    kOneOf,     // one character of `set`
    kSequence,  // all of `parts`
    kChoice,    // one of `parts`
    kRepeat,    // parts[0], min to max times; max -1: any number
    kCall,      // `rule`
    kList,      // `items` in order with `parts[0]` between them; optional items may be missing
  };

  struct Expr {
    Kind kind = Kind::kNothing;
    std::string text;
    CodePointSet set;
    std::vector<ExprId> parts;
    std::vector<ListItem> items;
    std::int32_t min = 0;
    std::int32_t max = 0;
    RuleId rule = -1;
  };

  struct Rule {
    std::string name;
    ExprId body = -1;  // -1: not defined yet
  };

  ExprId nothing() { return add({}); }
  ExprId literal(std::string_view text);
  ExprId empty() { return literal({}); }
  ExprId one_of(CodePointSet set);
  ExprId any_character() { return one_of({{0, kLastCodePoint}}); }
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  ExprId repeat(ExprId item, std::int32_t min, std::int32_t max);
  ExprId optional(ExprId item) { return repeat(item, 0, 1); }
  ExprId list(std::vector<ListItem> items, ExprId separator);
  ExprId call(RuleId rule);

  // `name` is for errors; it need not be unique.
  RuleId add_rule(std::string name, ExprId body = -1);
  void define(RuleId rule, ExprId body) { rules_[static_cast<std::size_t>(rule)].body = body; }
  void set_start(RuleId rule) { start_ = rule; }
  // Takes over all rules of another grammar; the rule that is its start there.
  RuleId embed(const Grammar& other);

  const Expr& expr(ExprId id) const { return exprs_[static_cast<std::size_t>(id)]; }
  const std::vector<Rule>& rules() const { return rules_; }
  RuleId start() const { return start_; }
  std::size_t size() const { return exprs_.size(); }

 private:
  ExprId add(Expr expr);

  std::vector<Expr> exprs_;
  std::vector<Rule> rules_;
  RuleId start_ = -1;
};

}  // namespace sluice
