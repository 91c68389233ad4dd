// Parses the attributes, items, calls, filters and tests that follow a primary expression.
#include <utility>

#include "chat_template/builtins.h"
#include "chat_template/expression_parser.h"

namespace sluice::jinja {

Result<ExprPtr> ExpressionParser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      ASSIGN_OR_RETURN(expr, parse_subscript(std::move(expr)));
    } else if (at_operator("(")) {
      ASSIGN_OR_RETURN(expr, parse_call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (at_operator("|")) {
      ASSIGN_OR_RETURN(expr, parse_filters(std::move(expr), FirstPipe::kNeeded));
    } else if (at_word("is")) {
      ASSIGN_OR_RETURN(expr, parse_test(std::move(expr)));
    } else if (at_operator("(")) {
      ASSIGN_OR_RETURN(expr, parse_call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = current().line;
  if (skip_operator("[")) return parse_index(std::move(object), line);
  next();  // the dot
  const Token token = current();
  next();
  if (token.type == TokenType::kName) {
    ASSIGN_OR_RETURN(ExprPtr expr, make_with(ExprKind::kGetattr, line, std::move(object)));
    expr->name = token.text;
    return expr;
  }
  if (token.type != TokenType::kNumber || !token.constant.is(Kind::kInt)) {
    return syntax_error(token.line, "expected name or number");
  }
  ExprPtr index = make(ExprKind::kConst, token.line);
  index->constant = token.constant;
  return make_with(ExprKind::kGetitem, line, std::move(object), std::move(index));
}

Result<ExprPtr> ExpressionParser::parse_index(ExprPtr object, int line) {
  std::vector<ExprPtr> items;
  ExprPtr parts[3];
  bool is_slice = false;
  while (!at_operator("]")) {
    if (is_slice) return fail("a slice cannot be a part of a tuple index");
    if (!items.empty()) RETURN_IF_ERROR(expect_operator(","));
    int part = 0;
    while (true) {
      if (skip_operator(":")) {
        is_slice = true;
        if (++part > 2) return unexpected("]");
      } else if (at_operator("]") || at_operator(",") || parts[part]) {
        break;
      } else {
        ASSIGN_OR_RETURN(parts[part], parse_expression());
      }
    }
    if (is_slice) {
      if (!items.empty()) return fail("a slice cannot be a part of a tuple index");
    } else {
      if (!parts[0]) return fail("Expected an expression, got '" + describe(current()) + "'");
      items.push_back(std::move(parts[0]));
    }
  }
  RETURN_IF_ERROR(expect_operator("]"));
  if (is_slice) {
    return make_with(ExprKind::kSlice, line, std::move(object), std::move(parts[0]),
                     std::move(parts[1]), std::move(parts[2]));
  }
  if (items.size() == 1) {
    return make_with(ExprKind::kGetitem, line, std::move(object), std::move(items[0]));
  }
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->children = std::move(items);
  RETURN_IF_ERROR(set_depth(*tuple));
  return make_with(ExprKind::kGetitem, line, std::move(object), std::move(tuple));
}

Result<std::unique_ptr<Arguments>> ExpressionParser::parse_arguments() {
  const int line = current().line;
  next();  // "("
  auto args = std::make_unique<Arguments>();
  const auto invalid = [&] {
    return syntax_error(line, "invalid syntax for function call expression");
  };
  bool first = true;
  while (!at_operator(")")) {
    if (!first) {
      RETURN_IF_ERROR(expect_operator(","));
      if (at_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      if (args->extra_positional || args->extra_named) return invalid();
      ASSIGN_OR_RETURN(args->extra_positional, parse_expression());
    } else if (skip_operator("**")) {
      if (args->extra_named) return invalid();
      ASSIGN_OR_RETURN(args->extra_named, parse_expression());
    } else if (current().type == TokenType::kName && ahead().type == TokenType::kOperator &&
               ahead().text == "=") {
      if (args->extra_named) return invalid();
      args->names.push_back(current().text);
      next();
      next();
      ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      args->named.push_back(std::move(value));
    } else {
      if (args->extra_positional || args->extra_named || !args->named.empty()) return invalid();
      ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      args->positional.push_back(std::move(value));
    }
  }
  RETURN_IF_ERROR(expect_operator(")"));
  return args;
}

Result<ExprPtr> ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr expr = make(ExprKind::kCall, current().line);
  expr->children.push_back(std::move(callee));
  ASSIGN_OR_RETURN(expr->arguments, parse_arguments());
  RETURN_IF_ERROR(set_depth(*expr));
  return expr;
}

Result<std::string_view> ExpressionParser::parse_dotted_name() {
  ASSIGN_OR_RETURN(const Token token, expect_name());
  if (!at_operator(".")) return token.text;
  std::string name(token.text);
  while (skip_operator(".")) {
    ASSIGN_OR_RETURN(const Token part, expect_name());
    name.append(".").append(part.text);
  }
  return result_.heap.store(name);
}

Result<ExprPtr> ExpressionParser::parse_filters(ExprPtr value, FirstPipe first) {
  while (at_operator("|") || first == FirstPipe::kAbsent) {
    if (first == FirstPipe::kNeeded) next();
    first = FirstPipe::kNeeded;
    ExprPtr filter = make(ExprKind::kFilter, current().line);
    ASSIGN_OR_RETURN(filter->name, parse_dotted_name());
    filter->builtin = find_filter(filter->name);
    filter->children.push_back(std::move(value));
    if (at_operator("(")) {
      ASSIGN_OR_RETURN(filter->arguments, parse_arguments());
    }
    RETURN_IF_ERROR(set_depth(*filter));
    value = std::move(filter);
  }
  return value;
}

Result<ExprPtr> ExpressionParser::parse_test(ExprPtr value) {
  const int line = current().line;
  next();  // "is"
  const bool negated = skip_word("not");
  ExprPtr test = make(ExprKind::kTest, line);
  ASSIGN_OR_RETURN(test->name, parse_dotted_name());
  test->builtin = find_test(test->name);
  test->children.push_back(std::move(value));
  const Token& token = current();
  const bool argument_follows =
      token.type == TokenType::kName || token.type == TokenType::kString ||
      token.type == TokenType::kNumber || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    ASSIGN_OR_RETURN(test->arguments, parse_arguments());
  } else if (argument_follows && !at_word("else") && !at_word("or") && !at_word("and")) {
    if (at_word("is")) return fail("You cannot chain multiple tests with is");
    ASSIGN_OR_RETURN(ExprPtr argument, parse_primary(TupleRules::Items::kExpressions));
    ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    test->arguments = std::make_unique<Arguments>();
    test->arguments->positional.push_back(std::move(argument));
  }
  RETURN_IF_ERROR(set_depth(*test));
  if (!negated) return test;
  return make_with(ExprKind::kNot, line, std::move(test));
}

}  // namespace sluice::jinja
