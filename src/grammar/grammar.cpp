#include "grammar/grammar.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr std::uint32_t kFirstSurrogate = 0xD800;
constexpr std::uint32_t kLastSurrogate = 0xDFFF;

void append_merged(CodePointRange range, CodePointSet& out) {
  if (!out.empty() && range.first <= out.back().last + 1) {
    out.back().last = std::max(out.back().last, range.last);
  } else {
    out.push_back(range);
  }
}

}  // namespace

CodePointSet normalized(CodePointSet set) {
  std::ranges::sort(set, {}, &CodePointRange::first);
  CodePointSet merged;
  for (const CodePointRange& range : set) {
    if (range.first <= range.last) append_merged(range, merged);
  }
  CodePointSet out;
  for (const CodePointRange& range : merged) {
    const std::uint32_t last = std::min(range.last, kLastCodePoint);
    if (range.first < kFirstSurrogate) {
      out.push_back({range.first, std::min(last, kFirstSurrogate - 1)});
    }
    if (last > kLastSurrogate) out.push_back({std::max(range.first, kLastSurrogate + 1), last});
  }
  return out;
}

CodePointSet complement(const CodePointSet& set) {
  CodePointSet out;
  std::uint32_t next = 0;
  for (const CodePointRange& range : normalized(set)) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return normalized(std::move(out));
}

CodePointSet intersection(const CodePointSet& a, const CodePointSet& b) {
  CodePointSet out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const CodePointRange common{std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (common.first <= common.last) out.push_back(common);
    (a[i].last < b[j].last ? i : j) += 1;
  }
  return out;
}

ExprId Grammar::add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::literal(std::string_view text) {
  Expr expr;
  expr.kind = Kind::kLiteral;
  expr.text = text;
  return add(std::move(expr));
}

ExprId Grammar::one_of(CodePointSet set) {
  Expr expr;
  expr.kind = Kind::kOneOf;
  expr.set = normalized(std::move(set));
  return add(std::move(expr));
}

ExprId Grammar::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  Expr expr;
  expr.kind = Kind::kSequence;
  expr.parts = std::move(parts);
  return add(std::move(expr));
}

ExprId Grammar::choice(std::vector<ExprId> parts) {
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts.front();
  Expr expr;
  expr.kind = Kind::kChoice;
  expr.parts = std::move(parts);
  return add(std::move(expr));
}

ExprId Grammar::repeat(ExprId item, std::int32_t min, std::int32_t max) {
  Expr expr;
  expr.kind = Kind::kRepeat;
  expr.parts = {item};
  expr.min = min;
  expr.max = max;
  return add(std::move(expr));
}

ExprId Grammar::list(std::vector<ListItem> items, ExprId separator) {
  Expr expr;
  expr.kind = Kind::kList;
  expr.items = std::move(items);
  expr.parts = {separator};
  return add(std::move(expr));
}

ExprId Grammar::call(RuleId rule) {
  Expr expr;
  expr.kind = Kind::kCall;
  expr.rule = rule;
  return add(std::move(expr));
}

RuleId Grammar::embed(const Grammar& other) {
  const auto exprs = static_cast<ExprId>(exprs_.size());
  const auto rules = static_cast<RuleId>(rules_.size());
  for (Expr expr : other.exprs_) {
    for (ExprId& part : expr.parts) part += exprs;
    for (ListItem& item : expr.items) item.expr += exprs;
    if (expr.kind == Kind::kCall) expr.rule += rules;
    exprs_.push_back(std::move(expr));
  }
  for (Rule rule : other.rules_) {
    if (rule.body >= 0) rule.body += exprs;
    rules_.push_back(std::move(rule));
  }
  return other.start_ + rules;
}

RuleId Grammar::add_rule(std::string name, ExprId body) {
  rules_.push_back({std::move(name), body});
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace sluice
