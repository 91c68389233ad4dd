// Expressions (interpreter.h).
#include <algorithm>
#include <utility>

#include "chat_template/builtins.h"
#include "chat_template/callables.h"
#include "chat_template/format.h"
#include "chat_template/interpreter.h"
#include "chat_template/iterators.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

Result<Value> Interpreter::eval(const Expr& expr) {
  const Depth depth(*this);
  heap_.step();
  RETURN_IF_ERROR(check_budget());
  line_ = expr.line;
  return eval_node(expr);
}

Result<Value> Interpreter::eval_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst: return expr.constant;
    case ExprKind::kName:
    case ExprKind::kNamespaceRef: return eval_name(expr);
    case ExprKind::kTuple:
    case ExprKind::kList: return eval_items(expr);
    case ExprKind::kDict: return eval_dict(expr);
    case ExprKind::kConditional: {
      ASSIGN_OR_RETURN(const Value test, eval(*expr.children[0]));
      if (is_truthy(test)) return eval(*expr.children[1]);
      if (expr.children[2]) return eval(*expr.children[2]);
      return undefined_hint(heap_.store("the inline if-expression on line " +
                                        std::to_string(expr.line) +
                                        " evaluated to false and no else section was defined."));
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      ASSIGN_OR_RETURN(const Value left, eval(*expr.children[0]));
      if (is_truthy(left) == (expr.kind == ExprKind::kOr)) return left;
      return eval(*expr.children[1]);
    }
    case ExprKind::kNot: {
      ASSIGN_OR_RETURN(const Value operand, eval(*expr.children[0]));
      return Value::boolean(!is_truthy(operand));
    }
    case ExprKind::kNegate: {
      ASSIGN_OR_RETURN(const Value operand, eval(*expr.children[0]));
      return negate(operand);
    }
    case ExprKind::kPlus: {
      ASSIGN_OR_RETURN(const Value operand, eval(*expr.children[0]));
      if (operand.is_undefined()) return undefined_error(operand);
      if (operand.is(Kind::kBool)) return Value::integer(operand.as_int());
      if (operand.is_number()) return operand;
      return type_error("bad operand type for unary +: '" + std::string(type_name(operand)) + "'");
    }
    case ExprKind::kArithmetic: return eval_arithmetic(expr);
    case ExprKind::kConcat: return eval_concat(expr);
    case ExprKind::kCompare: return eval_compare(expr);
    case ExprKind::kGetattr: {
      ASSIGN_OR_RETURN(const Value object, eval(*expr.children[0]));
      line_ = expr.line;
      return get_attribute(object, expr.name);
    }
    case ExprKind::kGetitem: {
      ASSIGN_OR_RETURN(const Value object, eval(*expr.children[0]));
      ASSIGN_OR_RETURN(const Value index, eval(*expr.children[1]));
      line_ = expr.line;
      return get_item(object, index);
    }
    case ExprKind::kSlice: return eval_slice(expr);
    case ExprKind::kCall: return eval_call(expr, Value());
    case ExprKind::kFilter:
    case ExprKind::kTest: {
      ASSIGN_OR_RETURN(const Value value, eval(*expr.children[0]));
      return eval_builtin(expr, value);
    }
  }
  return Value::none();
}

Value Interpreter::eval_name(const Expr& expr) {
  const Value* bound = scope_->find(expr.symbol);
  const Value value = bound != nullptr ? *bound : globals_[static_cast<std::size_t>(expr.symbol)];
  if (!value.is_missing()) return value;
  return undefined(Value(), Value::string(expr.name));
}

Result<Value> Interpreter::eval_items(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    ASSIGN_OR_RETURN(const Value item, eval(*child));
    items.push_back(item);
  }
  return expr.kind == ExprKind::kList ? heap_.make_list(items) : heap_.make_tuple(items);
}

Result<Value> Interpreter::eval_dict(const Expr& expr) {
  std::vector<DictEntry> entries;
  for (std::size_t i = 0; i < expr.children.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, eval(*expr.children[i]));
    ASSIGN_OR_RETURN(const Value value, eval(*expr.children[i + 1]));
    if (!is_hashable(key)) {
      return type_error("unhashable type: '" + std::string(type_name(key)) + "'");
    }
    entries.push_back({key, value});
  }
  return heap_.make_dict(entries);
}

Result<Value> Interpreter::eval_arithmetic(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value left, eval(*expr.children[0]));
  ASSIGN_OR_RETURN(const Value right, eval(*expr.children[1]));
  line_ = expr.line;
  if (expr.op == Arithmetic::kMod && left.is_string()) return format_percent(*this, left, right);
  return arithmetic(heap_, expr.op, left, right);
}

Result<Value> Interpreter::eval_concat(const Expr& expr) {
  TextBuilder out(heap_);
  for (const ExprPtr& child : expr.children) {
    ASSIGN_OR_RETURN(const Value part, eval(*child));
    append_text(heap_, out, part);
  }
  return out.finish();
}

Result<bool> Interpreter::eval_comparison(Comparison comparison, Value left, Value right) {
  switch (comparison) {
    case Comparison::kEqual: return equals(heap_, left, right);
    case Comparison::kNotEqual: return !equals(heap_, left, right);
    case Comparison::kLess: return compare(heap_, Order::kLess, left, right);
    case Comparison::kLessEqual: return compare(heap_, Order::kLessEqual, left, right);
    case Comparison::kGreater: return compare(heap_, Order::kGreater, left, right);
    case Comparison::kGreaterEqual: return compare(heap_, Order::kGreaterEqual, left, right);
    case Comparison::kIn: return contains(right, left);
    case Comparison::kNotIn: {
      ASSIGN_OR_RETURN(const bool found, contains(right, left));
      return !found;
    }
  }
  return false;
}

Result<Value> Interpreter::eval_compare(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, eval(*expr.children[0]));
  for (std::size_t i = 0; i < expr.comparisons.size(); ++i) {
    ASSIGN_OR_RETURN(const Value right, eval(*expr.children[i + 1]));
    line_ = expr.line;
    ASSIGN_OR_RETURN(const bool holds, eval_comparison(expr.comparisons[i], left, right));
    if (!holds) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::eval_slice(const Expr& expr) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i) {
    if (!expr.children[i]) continue;
    ASSIGN_OR_RETURN(parts[i], eval(*expr.children[i]));
  }
  line_ = expr.line;
  return slice(heap_, parts[0], parts[1], parts[2], parts[3]);
}

Status Interpreter::eval_arguments(const Arguments* arguments, EvaluatedArgs* out) {
  if (arguments == nullptr) return {};
  for (const ExprPtr& expr : arguments->positional) {
    ASSIGN_OR_RETURN(const Value value, eval(*expr));
    out->positional.push_back(value);
  }
  if (arguments->extra_positional) {
    ASSIGN_OR_RETURN(const Value extra, eval(*arguments->extra_positional));
    std::vector<Value> storage;
    ASSIGN_OR_RETURN(const auto items, collect(extra, &storage));
    out->positional.insert(out->positional.end(), items.begin(), items.end());
  }
  for (std::size_t i = 0; i < arguments->named.size(); ++i) {
    ASSIGN_OR_RETURN(const Value value, eval(*arguments->named[i]));
    out->keyword.emplace_back(arguments->names[i], value);
  }
  if (!arguments->extra_named) return {};
  ASSIGN_OR_RETURN(const Value extra, eval(*arguments->extra_named));
  if (!extra.is_dict()) {
    return type_error("argument after ** must be a mapping, not " + std::string(type_name(extra)));
  }
  for (const DictEntry& entry : extra.as_dict().entries) {
    if (!entry.key.is_string()) return type_error("keywords must be strings");
    for (const KeywordArg& given : out->keyword) {
      if (given.first == entry.key.text()) {
        return type_error("got multiple values for keyword argument " + quote(given.first));
      }
    }
    out->keyword.emplace_back(entry.key.text(), entry.value);
  }
  return {};
}

Result<Value> Interpreter::eval_call(const Expr& expr, Value caller) {
  ASSIGN_OR_RETURN(const Value callee, eval(*expr.children[0]));
  EvaluatedArgs args;
  RETURN_IF_ERROR(eval_arguments(expr.arguments.get(), &args));
  if (!caller.is_missing()) args.keyword.emplace_back("caller", caller);
  line_ = expr.line;
  return call(callee, {args.positional, args.keyword});
}

// The filters of a block: the innermost one filters the block's text.
Result<Value> Interpreter::eval_block_filter(const Expr& filter, Value text) {
  if (filter.children[0] == nullptr) return eval_builtin(filter, text);
  ASSIGN_OR_RETURN(const Value inner, eval_block_filter(*filter.children[0], text));
  return eval_builtin(filter, inner);
}

Result<Value> Interpreter::eval_builtin(const Expr& expr, Value value) {
  EvaluatedArgs args;
  args.positional.push_back(value);
  RETURN_IF_ERROR(eval_arguments(expr.arguments.get(), &args));
  line_ = expr.line;
  if (expr.builtin == nullptr) {
    return python_error("TemplateRuntimeError",
                        std::string(expr.kind == ExprKind::kFilter ? "No filter" : "No test") +
                            " named " + quote(expr.name) + " found.");
  }
  return call_builtin(*this, *expr.builtin, {args.positional, args.keyword});
}

}  // namespace sluice::jinja
