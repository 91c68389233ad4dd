#include "chat_template/name_analysis.h"

#include <string>

#include "chat_template/lexer.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

enum class Condition : std::uint8_t { kAlways, kMaybe };

class UnknownNames {
 public:
  Status check(const Block& block, Condition condition) {
    for (const StmtPtr& statement : block) check(*statement, condition);
    return std::move(status_);
  }

 private:
  void check(const ExprPtr& expr, Condition condition) {
    if (expr) check(*expr, condition);
  }

  void check(const Expr& expr, Condition condition) {
    const bool is_filter = expr.kind == ExprKind::kFilter;
    if ((is_filter || expr.kind == ExprKind::kTest) && expr.builtin == nullptr &&
        condition == Condition::kAlways && status_) {
      status_ = syntax_error(expr.line, std::string(is_filter ? "No filter" : "No test") +
                                            " named " + quote(expr.name) + ".");
    }
    if (expr.kind == ExprKind::kConditional) condition = Condition::kMaybe;
    for_each_child(expr, [&](const Expr& child) { check(child, condition); });
  }

  void check(const Stmt& s, Condition condition) {
    const Condition own = s.kind == StmtKind::kIf ? Condition::kMaybe : condition;
    for (const ExprPtr& expr : s.expressions) check(expr, own);
    check(s.target, own);
    check(s.value, own);
    check(s.test, Condition::kAlways);
    check(s.filter, Condition::kAlways);
    for (const Parameter& parameter : s.parameters) {
      check(parameter.fallback, Condition::kAlways);
    }
    // A body with its own scope is compiled as if it were not inside a condition.
    const Condition inner = s.kind == StmtKind::kIf ? Condition::kMaybe : Condition::kAlways;
    for (const Block& branch : s.branches) check_block(branch, inner);
    check_block(s.body, inner);
    check_block(s.else_body, inner);
  }

  void check_block(const Block& block, Condition condition) {
    for (const StmtPtr& statement : block) check(*statement, condition);
  }

  Status status_;
};

// Finds the special names that a body reads before it binds them itself, in jinja2's order.
class SpecialNames {
 public:
  void visit(const Block& block) {
    for (const StmtPtr& statement : block) visit(*statement);
  }

  bool reads[4] = {};

 private:
  void visit(const ExprPtr& expr) {
    if (expr) visit(*expr);
  }

  void visit(const Expr& expr) {
    if (expr.kind == ExprKind::kName && expr.symbol >= 0 && expr.symbol <= kSymbolVarargs &&
        !bound_[expr.symbol]) {
      reads[expr.symbol] = true;
    }
    for_each_child(expr, [&](const Expr& child) { visit(child); });
  }

  void bind(int symbol) {
    if (symbol >= 0 && symbol <= kSymbolVarargs && !reads[symbol]) bound_[symbol] = true;
  }
  void bind(const ExprPtr& target) {
    if (!target) return;
    if (target->kind == ExprKind::kName) bind(target->symbol);
    for (const ExprPtr& item : target->children) bind(item);
  }

  void visit(const Stmt& s) {
    if (s.kind == StmtKind::kWith) {
      for (std::size_t i = 0; i < s.expressions.size(); i += 2) bind(s.expressions[i]);
      for (std::size_t i = 1; i < s.expressions.size(); i += 2) visit(s.expressions[i]);
    } else {
      bind(s.target);
      visit(s.value);
      visit(s.filter);
      for (std::size_t i = 0; i < s.expressions.size(); ++i) {
        visit(s.expressions[i]);
        if (i < s.branches.size()) visit(s.branches[i]);
      }
    }
    for (const Parameter& parameter : s.parameters) bind(parameter.symbol);
    for (const Parameter& parameter : s.parameters) visit(parameter.fallback);
    visit(s.body);
    visit(s.else_body);
    visit(s.test);
  }

  bool bound_[4] = {};
};

Status mark_macros(Block& block) {
  for (StmtPtr& statement : block) {
    Stmt& s = *statement;
    if (s.kind == StmtKind::kMacro || s.kind == StmtKind::kCallBlock) {
      SpecialNames names;
      names.visit(s.body);
      s.uses_caller = names.reads[kSymbolCaller];
      s.uses_kwargs = names.reads[kSymbolKwargs];
      s.uses_varargs = names.reads[kSymbolVarargs];
      for (const Parameter& parameter : s.parameters) {
        if (parameter.symbol == kSymbolKwargs) s.uses_kwargs = false;
        if (parameter.symbol == kSymbolVarargs) s.uses_varargs = false;
        if (parameter.symbol == kSymbolCaller && s.uses_caller && !parameter.fallback) {
          return syntax_error(s.line,
                              "When defining macros or call blocks the special \"caller\" "
                              "argument must be omitted or be given a default.");
        }
      }
    }
    for (Block& branch : s.branches) RETURN_IF_ERROR(mark_macros(branch));
    RETURN_IF_ERROR(mark_macros(s.body));
    RETURN_IF_ERROR(mark_macros(s.else_body));
  }
  return {};
}

}  // namespace

Status analyse_names(Template& parsed) {
  RETURN_IF_ERROR(UnknownNames().check(parsed.body, Condition::kAlways));
  return mark_macros(parsed.body);
}

}  // namespace sluice::jinja
