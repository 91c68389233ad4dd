// The expression half of the parser, over a vector of tokens. See parser.h.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat_template/ast.h"
#include "chat_template/lexer.h"

namespace sluice::jinja {

enum class Conditional : std::uint8_t { kAllowed, kNotAllowed };

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Template& result);

 protected:
  // The places, besides the end of the tag, at which a tuple without parentheses ends.
  struct TupleRules {
    Conditional conditional = Conditional::kAllowed;
    std::string_view end_word = "";
    enum class Items : std::uint8_t { kExpressions, kTargets, kTargetsAndNamespaces };
    Items items = Items::kExpressions;
    bool in_parentheses = false;
  };

  Result<ExprPtr> parse_expression(Conditional conditional = Conditional::kAllowed);
  Result<ExprPtr> parse_tuple(const TupleRules& rules);
  Result<ExprPtr> parse_assign_target(std::string_view end_word, TupleRules::Items items);
  // Parses the filters after `value`, which is null in filter blocks; there the first filter has no
  // "|" before it.
  enum class FirstPipe : std::uint8_t { kNeeded, kAbsent };
  Result<ExprPtr> parse_filters(ExprPtr value, FirstPipe first);

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  void next() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool at_operator(std::string_view text) const {
    return current().type == TokenType::kOperator && current().text == text;
  }
  bool at_word(std::string_view word) const {
    return current().type == TokenType::kName && current().text == word;
  }
  bool skip_operator(std::string_view text);
  bool skip_word(std::string_view word);
  Status expect_operator(std::string_view text);
  Result<Token> expect_name();
  Error fail(std::string_view message) const { return syntax_error(current().line, message); }
  Error unexpected(std::string_view expected) const;
  static std::string describe(const Token& token);

  int symbol(std::string_view name);
  Template& result_;
  int loop_depth_ = 0;  // for statements around the current token

 private:
  class Nesting;

  ExprPtr make(ExprKind kind, int line) const;
  template <class... Children>
  Result<ExprPtr> make_with(ExprKind kind, int line, Children... children) const {
    ExprPtr expr = make(kind, line);
    (expr->children.push_back(std::move(children)), ...);
    RETURN_IF_ERROR(set_depth(*expr));
    return expr;
  }
  Status set_depth(Expr& expr) const;

  Result<ExprPtr> parse_conditional();
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  enum class Filters : std::uint8_t { kAllowed, kNotAllowed };
  Result<ExprPtr> parse_unary(Filters filters);
  Result<ExprPtr> parse_primary(TupleRules::Items items);
  Result<ExprPtr> parse_name(TupleRules::Items items);
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<ExprPtr> parse_postfix(ExprPtr expr);
  Result<ExprPtr> parse_filters_and_tests(ExprPtr expr);
  Result<ExprPtr> parse_subscript(ExprPtr object);
  Result<ExprPtr> parse_index(ExprPtr object, int line);
  Result<std::unique_ptr<Arguments>> parse_arguments();
  Result<ExprPtr> parse_call(ExprPtr callee);
  Result<ExprPtr> parse_test(ExprPtr value);
  Result<std::string_view> parse_dotted_name();
  Status check_target(const Expr& target) const;

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;
  std::map<std::string_view, int> symbols_;
};

}  // namespace sluice::jinja
