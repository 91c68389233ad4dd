#include "chat_template/expression_parser.h"

#include <algorithm>
#include <utility>

#include "chat_template/builtins.h"
#include "chat_template/parser.h"
#include "chat_template/text.h"

namespace sluice::jinja {

// Counts the parser's nested calls; every cycle of the grammar passes one.
class ExpressionParser::Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool too_deep() const { return depth_ > kMaxExpressionDepth; }

 private:
  int& depth_;
};

namespace {

Error too_deep(int line) {
  return syntax_error(line, "expressions are nested deeper than " +
                                std::to_string(kMaxExpressionDepth) + " levels");
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, Template& result)
    : result_(result), tokens_(std::move(tokens)) {
  for (const std::string_view name : {"loop", "caller", "kwargs", "varargs"}) symbol(name);
}

int ExpressionParser::symbol(std::string_view name) {
  const auto [it, added] = symbols_.emplace(name, static_cast<int>(result_.symbols.size()));
  if (added) result_.symbols.push_back(name);
  return it->second;
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData: return "template data / text";
    case TokenType::kBlockBegin: return "begin of statement block";
    case TokenType::kBlockEnd: return "end of statement block";
    case TokenType::kVariableBegin: return "begin of print statement";
    case TokenType::kVariableEnd: return "end of print statement";
    case TokenType::kString: return "string";
    case TokenType::kNumber: return token.constant.is(Kind::kFloat) ? "float" : "integer";
    case TokenType::kEnd: return "end of template";
    case TokenType::kName:
    case TokenType::kOperator: return std::string(token.text);
  }
  return "";
}

Error ExpressionParser::unexpected(std::string_view expected) const {
  if (current().type == TokenType::kEnd) {
    return fail("unexpected end of template, expected " + quote(expected) + ".");
  }
  return fail("expected token " + quote(expected) + ", got " + quote(describe(current())));
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_word(std::string_view word) {
  if (!at_word(word)) return false;
  next();
  return true;
}

Status ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) return unexpected(text);
  return {};
}

Result<Token> ExpressionParser::expect_name() {
  if (current().type != TokenType::kName) return unexpected("name");
  Token token = current();
  next();
  return token;
}

ExprPtr ExpressionParser::make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

Status ExpressionParser::set_depth(Expr& expr) const {
  int below = 0;
  const auto look = [&](const ExprPtr& e) {
    if (e) below = std::max(below, e->depth);
  };
  for (const ExprPtr& child : expr.children) look(child);
  if (expr.arguments) {
    for (const ExprPtr& e : expr.arguments->positional) look(e);
    for (const ExprPtr& e : expr.arguments->named) look(e);
    look(expr.arguments->extra_positional);
    look(expr.arguments->extra_named);
  }
  expr.depth = below + 1;
  if (expr.depth > kMaxExpressionDepth) return too_deep(expr.line);
  return {};
}

Result<ExprPtr> ExpressionParser::parse_expression(Conditional conditional) {
  const Nesting nesting(nesting_);
  if (nesting.too_deep()) return too_deep(current().line);
  return conditional == Conditional::kAllowed ? parse_conditional() : parse_or();
}

Result<ExprPtr> ExpressionParser::parse_conditional() {
  const Nesting nesting(nesting_);
  if (nesting.too_deep()) return too_deep(current().line);
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr expr, parse_or());
  while (skip_word("if")) {
    ASSIGN_OR_RETURN(ExprPtr test, parse_or());
    ExprPtr otherwise;
    if (skip_word("else")) {
      ASSIGN_OR_RETURN(otherwise, parse_conditional());
    }
    ASSIGN_OR_RETURN(expr, make_with(ExprKind::kConditional, line, std::move(test), std::move(expr),
                                     std::move(otherwise)));
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::parse_or() {
  ASSIGN_OR_RETURN(ExprPtr left, parse_and());
  while (at_word("or")) {
    const int line = current().line;
    next();
    ASSIGN_OR_RETURN(ExprPtr right, parse_and());
    ASSIGN_OR_RETURN(left, make_with(ExprKind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_and() {
  ASSIGN_OR_RETURN(ExprPtr left, parse_not());
  while (at_word("and")) {
    const int line = current().line;
    next();
    ASSIGN_OR_RETURN(ExprPtr right, parse_not());
    ASSIGN_OR_RETURN(left, make_with(ExprKind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_not() {
  const Nesting nesting(nesting_);
  if (nesting.too_deep()) return too_deep(current().line);
  if (!at_word("not")) return parse_compare();
  const int line = current().line;
  next();
  ASSIGN_OR_RETURN(ExprPtr operand, parse_not());
  return make_with(ExprKind::kNot, line, std::move(operand));
}

Result<ExprPtr> ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual},
  };
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr first, parse_sum());
  ExprPtr expr;
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& op) { return at_operator(op.first); });
    Comparison comparison = Comparison::kIn;
    if (found != std::end(kOperators)) {
      comparison = found->second;
    } else if (at_word("not") && ahead().type == TokenType::kName && ahead().text == "in") {
      next();
      comparison = Comparison::kNotIn;
    } else if (!at_word("in")) {
      break;
    }
    next();
    if (!expr) {
      expr = make(ExprKind::kCompare, line);
      expr->children.push_back(std::move(first));
    }
    ASSIGN_OR_RETURN(ExprPtr operand, parse_sum());
    expr->children.push_back(std::move(operand));
    expr->comparisons.push_back(comparison);
  }
  if (!expr) return first;
  RETURN_IF_ERROR(set_depth(*expr));
  return expr;
}

Result<ExprPtr> ExpressionParser::parse_sum() {
  ASSIGN_OR_RETURN(ExprPtr left, parse_concat());
  while (at_operator("+") || at_operator("-")) {
    const int line = current().line;
    const Arithmetic op = at_operator("+") ? Arithmetic::kAdd : Arithmetic::kSub;
    next();
    ASSIGN_OR_RETURN(ExprPtr right, parse_concat());
    ASSIGN_OR_RETURN(left,
                     make_with(ExprKind::kArithmetic, line, std::move(left), std::move(right)));
    left->op = op;
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_concat() {
  const int line = current().line;
  ASSIGN_OR_RETURN(ExprPtr first, parse_product());
  if (!at_operator("~")) return first;
  ExprPtr expr = make(ExprKind::kConcat, line);
  expr->children.push_back(std::move(first));
  while (skip_operator("~")) {
    ASSIGN_OR_RETURN(ExprPtr part, parse_product());
    expr->children.push_back(std::move(part));
  }
  RETURN_IF_ERROR(set_depth(*expr));
  return expr;
}

Result<ExprPtr> ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, Arithmetic> kOperators[] = {
      {"*", Arithmetic::kMul},
      {"/", Arithmetic::kDiv},
      {"//", Arithmetic::kFloorDiv},
      {"%", Arithmetic::kMod},
  };
  ASSIGN_OR_RETURN(ExprPtr left, parse_power());
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& op) { return at_operator(op.first); });
    if (found == std::end(kOperators)) return left;
    const int line = current().line;
    next();
    ASSIGN_OR_RETURN(ExprPtr right, parse_power());
    ASSIGN_OR_RETURN(left,
                     make_with(ExprKind::kArithmetic, line, std::move(left), std::move(right)));
    left->op = found->second;
  }
}

Result<ExprPtr> ExpressionParser::parse_power() {
  ASSIGN_OR_RETURN(ExprPtr left, parse_unary(Filters::kAllowed));
  while (at_operator("**")) {
    const int line = current().line;
    next();
    ASSIGN_OR_RETURN(ExprPtr right, parse_unary(Filters::kAllowed));
    ASSIGN_OR_RETURN(left,
                     make_with(ExprKind::kArithmetic, line, std::move(left), std::move(right)));
    left->op = Arithmetic::kPow;
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_unary(Filters filters) {
  const Nesting nesting(nesting_);
  if (nesting.too_deep()) return too_deep(current().line);
  const int line = current().line;
  ExprPtr expr;
  if (at_operator("-") || at_operator("+")) {
    const ExprKind kind = at_operator("-") ? ExprKind::kNegate : ExprKind::kPlus;
    next();
    ASSIGN_OR_RETURN(ExprPtr operand, parse_unary(Filters::kNotAllowed));
    ASSIGN_OR_RETURN(expr, make_with(kind, line, std::move(operand)));
  } else {
    ASSIGN_OR_RETURN(expr, parse_primary(TupleRules::Items::kExpressions));
  }
  ASSIGN_OR_RETURN(expr, parse_postfix(std::move(expr)));
  if (filters == Filters::kNotAllowed) return expr;
  return parse_filters_and_tests(std::move(expr));
}

Result<ExprPtr> ExpressionParser::parse_name(TupleRules::Items items) {
  const Token token = current();
  next();
  const std::string_view name = token.text;
  if (name == "true" || name == "false" || name == "True" || name == "False" || name == "none" ||
      name == "None") {
    ExprPtr expr = make(ExprKind::kConst, token.line);
    const bool is_none = name == "none" || name == "None";
    expr->constant = is_none ? Value::none() : Value::boolean(name == "true" || name == "True");
    return expr;
  }
  ExprPtr expr = make(ExprKind::kName, token.line);
  expr->name = name;
  expr->symbol = symbol(name);
  if (items == TupleRules::Items::kTargetsAndNamespaces && skip_operator(".")) {
    ASSIGN_OR_RETURN(const Token attribute, expect_name());
    expr->kind = ExprKind::kNamespaceRef;
    expr->name = attribute.text;
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::parse_primary(TupleRules::Items items) {
  const Token& token = current();
  if (token.type == TokenType::kName) return parse_name(items);
  if (token.type == TokenType::kString) {
    ExprPtr expr = make(ExprKind::kConst, token.line);
    expr->constant = Value::string(token.text);
    next();
    if (current().type == TokenType::kString) {
      std::string joined(expr->constant.text());
      for (; current().type == TokenType::kString; next()) joined += current().text;
      expr->constant = result_.heap.make_string(joined);
    }
    return expr;
  }
  if (token.type == TokenType::kNumber) {
    ExprPtr expr = make(ExprKind::kConst, token.line);
    expr->constant = token.constant;
    next();
    return expr;
  }
  if (skip_operator("(")) {
    TupleRules rules;
    rules.in_parentheses = true;
    ASSIGN_OR_RETURN(ExprPtr expr, parse_tuple(rules));
    RETURN_IF_ERROR(expect_operator(")"));
    return expr;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  return fail("unexpected " + quote(describe(token)));
}

Result<ExprPtr> ExpressionParser::parse_tuple(const TupleRules& rules) {
  const Nesting nesting(nesting_);
  if (nesting.too_deep()) return too_deep(current().line);
  const int line = current().line;
  ExprPtr tuple = make(ExprKind::kTuple, line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->children.empty()) RETURN_IF_ERROR(expect_operator(","));
    if (current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
        at_operator(")") || (!rules.end_word.empty() && at_word(rules.end_word))) {
      break;
    }
    ExprPtr item;
    if (rules.items == TupleRules::Items::kExpressions) {
      ASSIGN_OR_RETURN(item, parse_expression(rules.conditional));
    } else {
      ASSIGN_OR_RETURN(item, parse_primary(rules.items));
    }
    tuple->children.push_back(std::move(item));
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->children.empty()) return std::move(tuple->children.front());
    if (!rules.in_parentheses) {
      return fail("Expected an expression, got " + quote(describe(current())));
    }
  }
  RETURN_IF_ERROR(set_depth(*tuple));
  return tuple;
}

Result<ExprPtr> ExpressionParser::parse_list() {
  ExprPtr list = make(ExprKind::kList, current().line);
  next();
  while (!at_operator("]")) {
    if (!list->children.empty()) RETURN_IF_ERROR(expect_operator(","));
    if (at_operator("]")) break;
    ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
    list->children.push_back(std::move(item));
  }
  RETURN_IF_ERROR(expect_operator("]"));
  RETURN_IF_ERROR(set_depth(*list));
  return list;
}

Result<ExprPtr> ExpressionParser::parse_dict() {
  ExprPtr dict = make(ExprKind::kDict, current().line);
  next();
  while (!at_operator("}")) {
    if (!dict->children.empty()) RETURN_IF_ERROR(expect_operator(","));
    if (at_operator("}")) break;
    ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
    RETURN_IF_ERROR(expect_operator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
  }
  RETURN_IF_ERROR(expect_operator("}"));
  RETURN_IF_ERROR(set_depth(*dict));
  return dict;
}

Status ExpressionParser::check_target(const Expr& target) const {
  if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& item : target.children) RETURN_IF_ERROR(check_target(*item));
    return {};
  }
  if (target.kind == ExprKind::kName || target.kind == ExprKind::kNamespaceRef) {
    if (target.kind == ExprKind::kName && target.symbol == kSymbolLoop && loop_depth_ > 0) {
      return syntax_error(target.line, "Can't assign to special loop variable in for-loop target");
    }
    return {};
  }
  static constexpr std::string_view kNames[] = {"const", "name", "nsref", "tuple", "list", "dict"};
  const auto kind = static_cast<std::size_t>(target.kind);
  return syntax_error(target.line,
                      "can't assign to " + quote(kind < std::size(kNames) ? kNames[kind] : "expr"));
}

Result<ExprPtr> ExpressionParser::parse_assign_target(std::string_view end_word,
                                                      TupleRules::Items items) {
  TupleRules rules;
  rules.end_word = end_word;
  rules.items = items;
  ASSIGN_OR_RETURN(ExprPtr target, parse_tuple(rules));
  RETURN_IF_ERROR(check_target(*target));
  return target;
}

}  // namespace sluice::jinja
