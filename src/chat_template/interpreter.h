// Interpreter: runs a parsed template once. Not reusable; one thread. Names are looked up through a
// chain of scopes as in jinja2: bodies of loops, macros, set blocks and `with` have a scope of
// their own, `if` has none; macros see the scope they were defined in.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat_template/ast.h"
#include "chat_template/heap.h"
#include "chat_template/limits.h"
#include "chat_template/object.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class Scope final : public Object {
 public:
  explicit Scope(Scope* parent) : Object(ObjectType::kScope), parent_(parent) {}
  std::string_view type_name() const override { return "Scope"; }
  // The value bound to a symbol in this scope or an enclosing one; null when there is none,
  // kMissing when the name belongs to a scope that has not set it yet.
  const Value* find(int symbol) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      for (const auto& [key, value] : scope->values_) {
        if (key == symbol) return &value;
      }
    }
    return nullptr;
  }
  void set(int symbol, Value value) {
    for (auto& [key, old] : values_) {
      if (key == symbol) {
        old = value;
        return;
      }
    }
    values_.emplace_back(symbol, value);
  }

 private:
  Scope* parent_;
  std::vector<std::pair<int, Value>> values_;
};

class Interpreter {
 public:
  // `context` is a dict; it and the template must outlive the interpreter. `now` is local time
  // for strftime_now. `stop` may be null.
  Interpreter(const Template& parsed, Value context, const RenderLimits& limits,
              std::chrono::local_seconds now, const StopCheck* stop = nullptr);

  // The rendered text. Errors read "line N: TypeError: ..."; the stop check's error is unchanged.
  Result<std::string> run();

  // Counts nested calls on the C++ stack; past the limit the budget is exceeded.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter_.depth_ > interpreter_.limits_.max_depth) {
        interpreter_.heap_.set_exceeded("the limit of nested calls");
      }
    }
    ~Depth() { --interpreter_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // Used by builtins.
  Heap& heap() { return heap_; }
  std::chrono::local_seconds now() const { return now_; }
  Result<Value> call(Value callee, const CallArgs& args);
  Result<Value> get_attribute(Value object, std::string_view name);
  Result<Value> get_item(Value object, Value index);
  // Python's attribute alone, without the fall-back to items; kMissing when there is none.
  Value find_attribute(Value object, std::string_view name);
  Result<Iterator*> iterate(Value value);
  // Everything an iterable yields. Lists and tuples are not copied when `storage` is unused.
  Result<std::span<const Value>> collect(Value value, std::vector<Value>* storage);
  Result<bool> contains(Value container, Value item);
  Value undefined(Value object, Value name);
  Value undefined_hint(std::string_view hint);
  // groupby yields pairs that also have names.
  void mark_group(Value tuple) { groups_.insert(tuple.items().data()); }
  // An error when the budget is spent.
  Status check_budget() const;

  // Renders the body of a macro or of a recursive loop; used by those callables.
  Result<Value> call_macro(const Stmt& macro, Scope* scope, const CallArgs& args);
  Result<Value> call_loop(const Stmt& loop, Scope* scope, Value iterable, int depth0);

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  class FilteredItems;

  Value global(std::string_view name);
  // A scope in which `hidden` names are bound to nothing.
  Scope* make_scope(Scope* parent, const std::vector<int>& hidden);
  Result<Flow> run_block(const Block& block);
  Result<Flow> run_statement(const Stmt& statement);
  Status run_output(const Stmt& statement);
  Status run_set(const Stmt& statement);
  Result<Flow> run_set_block(const Stmt& statement);
  Result<Flow> run_if(const Stmt& statement);
  Result<Flow> run_for(const Stmt& statement);
  Result<Flow> run_loop(const Stmt& statement, Value iterable, int depth0);
  Status run_call_block(const Stmt& statement);
  Result<Flow> run_filter_block(const Stmt& statement);
  Result<Flow> run_with(const Stmt& statement);
  Result<Flow> run_scope(const Stmt& statement);
  Status emit(std::string_view text);
  Status assign(const Expr& target, Value value);
  Status check_namespaces(const Expr& target);
  Status bind_parameters(const Stmt& macro, const CallArgs& args);
  Status fill_defaults(const Stmt& macro);

  Result<Value> eval(const Expr& expr);
  Result<Value> eval_node(const Expr& expr);
  Value eval_name(const Expr& expr);
  Result<Value> eval_items(const Expr& expr);
  Result<Value> eval_dict(const Expr& expr);
  Result<Value> eval_arithmetic(const Expr& expr);
  Result<Value> eval_concat(const Expr& expr);
  Result<Value> eval_compare(const Expr& expr);
  Result<bool> eval_comparison(Comparison comparison, Value left, Value right);
  Result<Value> eval_slice(const Expr& expr);
  Result<Value> eval_call(const Expr& expr, Value caller);
  Result<Value> eval_builtin(const Expr& expr, Value value);
  Result<Value> eval_block_filter(const Expr& filter, Value text);
  struct EvaluatedArgs {
    std::vector<Value> positional;
    std::vector<KeywordArg> keyword;
  };
  Status eval_arguments(const Arguments* arguments, EvaluatedArgs* out);
  Value method_or_unsafe(Value object, std::string_view name);

  const Template& parsed_;
  Value context_;
  RenderLimits limits_;
  std::chrono::local_seconds now_;
  Heap heap_;
  std::vector<Value> globals_;  // by symbol: from the context or built in
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  std::string result_;
  std::unordered_set<const Value*> groups_;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace sluice::jinja
