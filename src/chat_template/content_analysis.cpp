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

class ContentLoops {
 public:
  bool find(const Template& parsed) {
    // Until no further variable turns out to hold content: names may be set in any order.
    std::size_t known = 0;
    do {
      known = holders_.size();
      visit(parsed.body);
    } while (!found_ && holders_.size() > known);
    return found_;
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

  void visit(const Stmt& s) {
    if (s.kind == StmtKind::kFor && holds(*s.value)) found_ = true;
    if (s.kind == StmtKind::kSet) assign(*s.target, *s.value);
    if (s.kind == StmtKind::kWith) {
      for (std::size_t i = 0; i + 1 < s.expressions.size(); i += 2) {
        assign(*s.expressions[i], *s.expressions[i + 1]);
      }
    }
    for (const Parameter& parameter : s.parameters) {
      if (parameter.name == kContent) holders_.insert(parameter.symbol);
    }
    for (const Block& branch : s.branches) visit(branch);
    visit(s.body);
    visit(s.else_body);
  }

  void visit(const Block& block) {
    for (const StmtPtr& statement : block) visit(*statement);
  }

  std::set<int> holders_;  // symbols
  bool found_ = false;
};

}  // namespace

bool loops_over_content(const Template& parsed) { return ContentLoops().find(parsed); }

}  // namespace sluice::jinja
