// JsonGrammar: the parts of JSON as expressions of one grammar: values of any kind, texts, and the
// marks between them. A blank may follow a comma or a colon; there is no other space. Numbers have
// at most 18 digits before and 17 behind the point and an exponent of two digits, so that every
// reader can hold them.
// It adds rules to the grammar when they are first used. One thread at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "grammar/grammar.h"

namespace sluice {

inline constexpr std::int32_t kMaxJsonDigits = 18;
inline constexpr std::int64_t kMaxJsonInteger = 999'999'999'999'999'999;

class JsonGrammar {
 public:
  explicit JsonGrammar(Grammar& grammar) : grammar_(grammar) {}

  ExprId any_value();
  ExprId any_object();
  ExprId any_array();
  ExprId any_string();
  ExprId any_integer();
  ExprId any_number();
  // An integer from `low` to `high`, both at most kMaxJsonInteger in size.
  ExprId integer(std::int64_t low, std::int64_t high);

  // The one way in which this value is written; the blanks stay open.
  ExprId constant(const JsonValue& value);
  // A string whose text is this one.
  ExprId text(std::string_view text);
  // One character of the set inside a string, escaped only where JSON asks for it.
  ExprId character(CodePointSet set);
  // One character of any kind inside a string, with all escapes.
  ExprId any_character();
  // A string that is none of these texts, without needless escapes.
  ExprId other_text(const std::vector<std::string_view>& texts);

  ExprId quoted(ExprId content);
  ExprId comma();
  ExprId colon();
  // "[" items "]", each of them `item`; max -1: any number. `item` is compiled once.
  ExprId array(ExprId item, std::int32_t min, std::int32_t max);
  // As array(), with braces around members.
  ExprId object(ExprId member, std::int32_t min, std::int32_t max);
  ExprId member(ExprId key, ExprId value) { return grammar_.sequence({key, colon(), value}); }
  ExprId braced(ExprId members);

 private:
  ExprId repeated(ExprId item, std::int32_t min, std::int32_t max);
  ExprId digits(std::int32_t min, std::int32_t max);
  ExprId exponent();
  ExprId same_length(std::string_view low, std::string_view high);
  ExprId at_least(std::string_view low);
  ExprId at_most(std::string_view high);
  ExprId natural(std::int64_t low, std::int64_t high);
  ExprId other_rest(const std::vector<std::string_view>& texts);

  Grammar& grammar_;
  RuleId value_ = -1;
  RuleId object_ = -1;
  RuleId array_ = -1;
  RuleId string_ = -1;
  RuleId integer_ = -1;
  RuleId number_ = -1;
};

}  // namespace sluice
