#include "chat_template/content_analysis.h"

#include <set>
#include <string_view>

namespace sluice::jinja {
namespace {

constexpr std::string_view kContent = "content";

bool is_content_name(const Expr& expr) {
  return expr.kind == ExprKind::kConst && expr.constant.is_string() &&
         expr.constant.text() == kContent;
}

// The limit of passes. Variables that are set in reverse order need one pass each; without a limit
// such a template would take quadratic time.
constexpr int kMaxPasses = 8;

class ContentFinder {
 public:
  ContentUses find(const Template& parsed) {
    std::size_t known = 0;
    for (int pass = 0; pass < kMaxPasses; ++pass) {
      visit(parsed.body);
      if (holders_.size() == known) break;
      known = holders_.size();
    }
    return uses_;
  }

 private:
  // Whether the value of the expression may be a message's content, or some of its parts.
  bool holds(const Expr& expr) const {
    switch (expr.kind) {
      case ExprKind::kName: return holders_.contains(expr.symbol);
      case ExprKind::kGetattr: return expr.name == kContent;
      case ExprKind::kGetitem: return is_content_name(*expr.children[1]);
      case ExprKind::kCall: {  // message.get('content')
        const Expr& callee = *expr.children[0];
        return callee.kind == ExprKind::kGetattr && callee.name == "get" && expr.arguments &&
               !expr.arguments->positional.empty() &&
               is_content_name(*expr.arguments->positional[0]);
      }
      case ExprKind::kSlice:
      case ExprKind::kFilter: return expr.children[0] && holds(*expr.children[0]);
      case ExprKind::kConditional:
        return holds(*expr.children[1]) || (expr.children[2] && holds(*expr.children[2]));
      case ExprKind::kAnd:
      case ExprKind::kOr: return holds(*expr.children[0]) || holds(*expr.children[1]);
      default: return false;
    }
  }

  void assign(const Expr& target, const Expr& value) {
    if (target.kind == ExprKind::kName && holds(value)) holders_.insert(target.symbol);
  }

  static bool is_none(const Expr& expr) {
    return expr.kind == ExprKind::kConst && expr.constant.is_none();
  }

  bool asks_for_none(const Expr& expr) const {
    if (expr.kind == ExprKind::kTest) return expr.name == "none" && holds(*expr.children[0]);
    return expr.kind == ExprKind::kCompare && expr.comparisons.size() == 1 &&
           (expr.comparisons[0] == Comparison::kEqual ||
            expr.comparisons[0] == Comparison::kNotEqual) &&
           holds(*expr.children[0]) && is_none(*expr.children[1]);
  }

  void visit(const Expr& expr) {
    if (asks_for_none(expr)) uses_.asks_for_none = true;
    for_each_child(expr, [&](const Expr& child) { visit(child); });
  }
  void visit(const ExprPtr& expr) {
    if (expr) visit(*expr);
  }

  void visit(const Stmt& s) {
    if (s.kind == StmtKind::kFor && holds(*s.value)) uses_.loops_over_it = true;
    if (s.kind == StmtKind::kSet) assign(*s.target, *s.value);
    if (s.kind == StmtKind::kWith) {
      for (std::size_t i = 0; i + 1 < s.expressions.size(); i += 2) {
        assign(*s.expressions[i], *s.expressions[i + 1]);
      }
    }
    for (const Parameter& parameter : s.parameters) {
      if (parameter.name == kContent) holders_.insert(parameter.symbol);
      visit(parameter.fallback);
    }
    for (const ExprPtr& expr : s.expressions) visit(expr);
    visit(s.value);
    visit(s.test);
    visit(s.filter);
    for (const Block& branch : s.branches) visit(branch);
    visit(s.body);
    visit(s.else_body);
  }

  void visit(const Block& block) {
    for (const StmtPtr& statement : block) visit(*statement);
  }

  std::set<int> holders_;  // symbols
  ContentUses uses_;
};

}  // namespace

ContentUses analyse_content(const Template& parsed) { return ContentFinder().find(parsed); }

}  // namespace sluice::jinja
