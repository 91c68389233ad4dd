#include "chat_template/scope_analysis.h"

#include <unordered_set>
#include <vector>

namespace sluice::jinja {

namespace {

enum class Certainty : std::uint8_t { kAlways, kInBranch };

// The names of one scope, in the order in which jinja2 meets them.
class ScopeNames {
 public:
  explicit ScopeNames(const ScopeNames* parent) : parent_(parent) {}

  void bind(int symbol) { known_.insert(symbol); }

  void load(int symbol) {
    if (symbol >= 0 && !is_known(symbol)) known_.insert(symbol);
  }

  // A name may stay unset in a branch, so it keeps its earlier value there.
  void store(int symbol, Certainty certainty) {
    if (symbol < 0 || !known_.insert(symbol).second) return;
    const bool outside = parent_ != nullptr && parent_->is_known(symbol);
    if (!outside && certainty == Certainty::kAlways) hidden_.push_back(symbol);
  }

  std::vector<int> take_hidden() { return std::move(hidden_); }

 private:
  bool is_known(int symbol) const {
    for (const ScopeNames* scope = this; scope != nullptr; scope = scope->parent_) {
      if (scope->known_.contains(symbol)) return true;
    }
    return false;
  }

  const ScopeNames* parent_;
  std::unordered_set<int> known_;
  std::vector<int> hidden_;
};

void visit(ScopeNames& names, const ExprPtr& expr) {
  if (!expr) return;
  if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceRef) {
    names.load(expr->symbol);
  }
  for (const ExprPtr& child : expr->children) visit(names, child);
  if (!expr->arguments) return;
  for (const ExprPtr& e : expr->arguments->positional) visit(names, e);
  for (const ExprPtr& e : expr->arguments->named) visit(names, e);
  visit(names, expr->arguments->extra_positional);
  visit(names, expr->arguments->extra_named);
}

void store_target(ScopeNames& names, const ExprPtr& target, Certainty certainty) {
  if (target->kind == ExprKind::kName) names.store(target->symbol, certainty);
  if (target->kind == ExprKind::kNamespaceRef) names.load(target->symbol);
  for (const ExprPtr& item : target->children) store_target(names, item, certainty);
}

void bind_target(ScopeNames& names, const ExprPtr& target) {
  if (target->kind == ExprKind::kName) names.bind(target->symbol);
  for (const ExprPtr& item : target->children) bind_target(names, item);
}

// Visits the statements of a scope that set or read its names; nested scopes are left out.
void visit(ScopeNames& names, const Block& block, Certainty certainty) {
  for (const StmtPtr& s : block) {
    switch (s->kind) {
      case StmtKind::kSet:
        visit(names, s->value);
        store_target(names, s->target, certainty);
        break;
      case StmtKind::kSetBlock: store_target(names, s->target, certainty); break;
      case StmtKind::kMacro: names.store(s->symbol, certainty); break;
      case StmtKind::kIf:
        for (std::size_t i = 0; i < s->branches.size(); ++i) {
          visit(names, s->expressions[i]);
          visit(names, s->branches[i], Certainty::kInBranch);
        }
        visit(names, s->else_body, Certainty::kInBranch);
        break;
      case StmtKind::kWith:
        for (std::size_t i = 1; i < s->expressions.size(); i += 2) visit(names, s->expressions[i]);
        break;
      default:
        visit(names, s->value);
        visit(names, s->filter);
        for (const ExprPtr& expr : s->expressions) visit(names, expr);
    }
  }
}

void analyse_inner(Block& block, const ScopeNames& outer);

void analyse_body(Stmt& s, const ScopeNames& outer) {
  ScopeNames names(&outer);
  if (s.kind == StmtKind::kFor) {
    names.bind(kSymbolLoop);
    bind_target(names, s.target);
  }
  if (s.kind == StmtKind::kWith) {
    for (std::size_t i = 0; i < s.expressions.size(); i += 2) bind_target(names, s.expressions[i]);
  }
  for (const Parameter& parameter : s.parameters) names.bind(parameter.symbol);
  if (s.uses_caller) names.bind(kSymbolCaller);
  if (s.uses_kwargs) names.bind(kSymbolKwargs);
  if (s.uses_varargs) names.bind(kSymbolVarargs);
  for (const Parameter& parameter : s.parameters) visit(names, parameter.fallback);
  visit(names, s.body, Certainty::kAlways);
  s.hidden = names.take_hidden();
  analyse_inner(s.body, names);
}

void analyse_inner(Block& block, const ScopeNames& outer) {
  for (StmtPtr& s : block) {
    if (s->kind == StmtKind::kIf) {
      for (Block& branch : s->branches) analyse_inner(branch, outer);
      analyse_inner(s->else_body, outer);
      continue;
    }
    analyse_body(*s, outer);
    if (s->else_body.empty()) continue;
    ScopeNames names(&outer);
    visit(names, s->else_body, Certainty::kAlways);
    s->else_hidden = names.take_hidden();
    analyse_inner(s->else_body, names);
  }
}

}  // namespace

void analyse_scopes(Template& parsed) {
  ScopeNames names(nullptr);
  visit(names, parsed.body, Certainty::kAlways);
  parsed.hidden = names.take_hidden();
  analyse_inner(parsed.body, names);
}

}  // namespace sluice::jinja
