#include "chat_template/interpreter.h"

#include <utility>

#include "chat_template/callables.h"
#include "chat_template/iterators.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

// Restores a member when the scope ends.
template <class T>
class Restore {
 public:
  Restore(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  ~Restore() { place_ = before_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  T before_;
};

}  // namespace

// The items of a loop that pass its `if`, evaluated one by one.
class Interpreter::FilteredItems final : public Iterator {
 public:
  FilteredItems(const Stmt& loop, Scope* scope, Iterator& source)
      : Iterator("generator"), loop_(loop), scope_(scope), source_(source) {}

  Result<bool> next(Interpreter& interpreter, Value* out) override {
    while (true) {
      Value item;
      ASSIGN_OR_RETURN(const bool more, source_.next(interpreter, &item));
      if (!more) return false;
      Heap& heap = interpreter.heap_;
      const Restore<Scope*> scope(interpreter.scope_, heap.make_object<Scope>(scope_));
      RETURN_IF_ERROR(interpreter.assign(*loop_.target, item));
      ASSIGN_OR_RETURN(const Value passes, interpreter.eval(*loop_.test));
      RETURN_IF_ERROR(interpreter.check_budget());
      if (is_truthy(passes)) {
        *out = item;
        return true;
      }
    }
  }

 private:
  const Stmt& loop_;
  Scope* scope_;
  Iterator& source_;
};

Interpreter::Interpreter(const Template& parsed, Value context, const RenderLimits& limits,
                         std::chrono::local_seconds now, const StopCheck* stop)
    : parsed_(parsed),
      context_(context),
      limits_(limits),
      now_(now),
      heap_(limits.max_value_bytes, limits.max_steps, stop) {
  globals_.reserve(parsed.symbols.size());
  for (const std::string_view name : parsed.symbols) globals_.push_back(global(name));
}

Value Interpreter::global(std::string_view name) {
  if (const Value* found = find(context_.as_dict(), name)) return *found;
  if (const Builtin* function = find_global(name)) {
    return Value::object(heap_.make_object<GlobalFunction>(*function));
  }
  return Value();
}

Scope* Interpreter::make_scope(Scope* parent, const std::vector<int>& hidden) {
  auto* scope = heap_.make_object<Scope>(parent);
  for (const int symbol : hidden) scope->set(symbol, Value());
  return scope;
}

Result<std::string> Interpreter::run() {
  scope_ = make_scope(nullptr, parsed_.hidden);
  out_ = &result_;
  Result<Flow> flow = run_block(parsed_.body);
  if (heap_.stopped()) return *heap_.stopped();
  if (!flow) {
    Error error = std::move(flow).error();
    error.message.insert(0, "line " + std::to_string(line_) + ": ");
    return error;
  }
  return std::move(result_);
}

Status Interpreter::check_budget() const {
  if (heap_.exceeded().empty()) return {};
  if (heap_.stopped()) return *heap_.stopped();
  return invalid_argument("the template passes " + std::string(heap_.exceeded()) +
                          " of one rendering");
}

Status Interpreter::emit(std::string_view text) {
  if (!heap_.charge(text.size())) return check_budget();
  if (out_ == &result_ && result_.size() + text.size() > limits_.max_output_bytes) {
    heap_.set_exceeded("the limit of output");
    return check_budget();
  }
  out_->append(text);
  return {};
}

Result<Interpreter::Flow> Interpreter::run_block(const Block& block) {
  const Depth depth(*this);
  RETURN_IF_ERROR(check_budget());
  for (const StmtPtr& statement : block) {
    heap_.step();
    ASSIGN_OR_RETURN(const Flow flow, run_statement(*statement));
    RETURN_IF_ERROR(check_budget());
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_statement(const Stmt& statement) {
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kData: RETURN_IF_ERROR(emit(statement.text)); break;
    case StmtKind::kOutput: RETURN_IF_ERROR(run_output(statement)); break;
    case StmtKind::kSet: RETURN_IF_ERROR(run_set(statement)); break;
    case StmtKind::kSetBlock: return run_set_block(statement);
    case StmtKind::kIf: return run_if(statement);
    case StmtKind::kFor: return run_for(statement);
    case StmtKind::kMacro:
      scope_->set(statement.symbol, Value::object(heap_.make_object<Macro>(statement, scope_)));
      break;
    case StmtKind::kCallBlock: RETURN_IF_ERROR(run_call_block(statement)); break;
    case StmtKind::kFilterBlock: return run_filter_block(statement);
    case StmtKind::kWith: return run_with(statement);
    case StmtKind::kScope: return run_scope(statement);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Status Interpreter::run_output(const Stmt& statement) {
  for (const ExprPtr& expr : statement.expressions) {
    ASSIGN_OR_RETURN(const Value value, eval(*expr));
    line_ = statement.line;
    RETURN_IF_ERROR(check_budget());
    RETURN_IF_ERROR(emit(to_text(heap_, value)));
  }
  return {};
}

Status Interpreter::check_namespaces(const Expr& target) {
  for (const ExprPtr& item : target.children) RETURN_IF_ERROR(check_namespaces(*item));
  if (target.kind != ExprKind::kNamespaceRef) return {};
  const Value* bound = scope_->find(target.symbol);
  const Value value = bound != nullptr ? *bound : globals_[static_cast<std::size_t>(target.symbol)];
  if (value.is(Kind::kObject) && value.as_object()->type() == ObjectType::kNamespace) return {};
  return python_error("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
}

Status Interpreter::run_set(const Stmt& statement) {
  RETURN_IF_ERROR(check_namespaces(*statement.target));
  ASSIGN_OR_RETURN(const Value value, eval(*statement.value));
  line_ = statement.line;
  return assign(*statement.target, value);
}

Status Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) {
    heap_.charge(sizeof(Value));
    scope_->set(target.symbol, value);
    return {};
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    RETURN_IF_ERROR(check_namespaces(target));
    if (target.name.starts_with("_")) {
      return python_error("SecurityError",
                          "Chat templates cannot store underscore-prefixed attributes on a "
                          "namespace, but got " +
                              quote(target.name) + ". Please rename the attribute.");
    }
    const Value* bound = scope_->find(target.symbol);
    const Value place =
        bound != nullptr ? *bound : globals_[static_cast<std::size_t>(target.symbol)];
    heap_.charge(sizeof(Value));
    static_cast<Namespace*>(place.as_object())->set(target.name, value);
    return {};
  }
  const std::string expected = std::to_string(target.children.size());
  Result<Iterator*> source = iterate(value);
  if (!source) {
    return type_error("cannot unpack non-iterable " + std::string(type_name(value)) + " object");
  }
  std::vector<Value> items;
  Value item;
  while (items.size() <= target.children.size()) {
    ASSIGN_OR_RETURN(const bool more, (*source)->next(*this, &item));
    if (!more) break;
    items.push_back(item);
  }
  if (items.size() > target.children.size()) {
    return python_error("ValueError", "too many values to unpack (expected " + expected + ")");
  }
  if (items.size() < target.children.size()) {
    return python_error("ValueError", "not enough values to unpack (expected " + expected +
                                          ", got " + std::to_string(items.size()) + ")");
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(assign(*target.children[i], items[i]));
  }
  return {};
}

Result<Interpreter::Flow> Interpreter::run_set_block(const Stmt& statement) {
  std::string text;
  Value value;
  {
    const Restore<Scope*> scope(scope_, make_scope(scope_, statement.hidden));
    {
      const Restore<std::string*> out(out_, &text);
      ASSIGN_OR_RETURN(const Flow flow, run_block(statement.body));
      if (flow != Flow::kNext) return flow;
    }
    line_ = statement.line;
    value = heap_.make_string(text);
    if (statement.filter) {
      ASSIGN_OR_RETURN(value, eval_block_filter(*statement.filter, value));
    }
  }
  RETURN_IF_ERROR(check_namespaces(*statement.target));
  RETURN_IF_ERROR(assign(*statement.target, value));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_if(const Stmt& statement) {
  for (std::size_t i = 0; i < statement.branches.size(); ++i) {
    ASSIGN_OR_RETURN(const Value test, eval(*statement.expressions[i]));
    if (is_truthy(test)) return run_block(statement.branches[i]);
  }
  return run_block(statement.else_body);
}

Result<Interpreter::Flow> Interpreter::run_for(const Stmt& statement) {
  ASSIGN_OR_RETURN(const Value iterable, eval(*statement.value));
  line_ = statement.line;
  if (!statement.recursive) return run_loop(statement, iterable, 0);
  ASSIGN_OR_RETURN(const Value text, call_loop(statement, scope_, iterable, 0));
  RETURN_IF_ERROR(emit(text.text()));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_loop(const Stmt& statement, Value iterable, int depth0) {
  ASSIGN_OR_RETURN(Iterator * source, iterate(iterable));
  std::int64_t length = length_of(heap_, iterable);
  if (statement.test) {
    source = heap_.make_object<FilteredItems>(statement, scope_, *source);
    length = -1;
  }
  Scope* const outer = scope_;
  auto* loop = heap_.make_object<Loop>(statement, outer, *source, length, depth0);
  bool completed_one = false;
  while (true) {
    Value item;
    ASSIGN_OR_RETURN(const bool more, loop->advance(*this, &item));
    RETURN_IF_ERROR(check_budget());
    if (!more) break;
    const Restore<Scope*> scope(scope_, make_scope(outer, statement.hidden));
    RETURN_IF_ERROR(assign(*statement.target, item));
    scope_->set(kSymbolLoop, Value::object(loop));
    ASSIGN_OR_RETURN(const Flow flow, run_block(statement.body));
    if (flow == Flow::kBreak) break;
    // As in jinja2, an iteration that ends with `continue` does not count for `else`.
    if (flow == Flow::kNext) completed_one = true;
  }
  if (completed_one || statement.else_body.empty()) return Flow::kNext;
  const Restore<Scope*> scope(scope_, make_scope(outer, statement.else_hidden));
  return run_block(statement.else_body);
}

Result<Value> Interpreter::call_loop(const Stmt& loop, Scope* scope, Value iterable, int depth0) {
  std::string text;
  const Restore<Scope*> around(scope_, scope);
  const Restore<std::string*> out(out_, &text);
  RETURN_IF_ERROR(run_loop(loop, iterable, depth0));
  return heap_.make_string(text);
}

Status Interpreter::run_call_block(const Stmt& statement) {
  const Value caller = Value::object(heap_.make_object<Macro>(statement, scope_));
  ASSIGN_OR_RETURN(const Value value, eval_call(*statement.value, caller));
  return emit(to_text(heap_, value));
}

Result<Interpreter::Flow> Interpreter::run_filter_block(const Stmt& statement) {
  const Restore<Scope*> scope(scope_, make_scope(scope_, statement.hidden));
  std::string text;
  {
    const Restore<std::string*> out(out_, &text);
    ASSIGN_OR_RETURN(const Flow flow, run_block(statement.body));
    if (flow != Flow::kNext) return flow;
  }
  line_ = statement.line;
  ASSIGN_OR_RETURN(const Value value,
                   eval_block_filter(*statement.filter, heap_.make_string(text)));
  RETURN_IF_ERROR(emit(to_text(heap_, value)));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_with(const Stmt& statement) {
  Scope* const outer = scope_;
  auto* inner = make_scope(outer, statement.hidden);
  for (std::size_t i = 0; i < statement.expressions.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value value, eval(*statement.expressions[i + 1]));
    const Restore<Scope*> scope(scope_, inner);
    RETURN_IF_ERROR(assign(*statement.expressions[i], value));
  }
  const Restore<Scope*> scope(scope_, inner);
  return run_block(statement.body);
}

Result<Interpreter::Flow> Interpreter::run_scope(const Stmt& statement) {
  const Restore<Scope*> scope(scope_, make_scope(scope_, statement.hidden));
  return run_block(statement.body);
}

Result<Value> Interpreter::call_macro(const Stmt& macro, Scope* scope, const CallArgs& args) {
  const int line = line_;
  std::string text;
  {
    const Restore<Scope*> around(scope_, make_scope(scope, macro.hidden));
    const Restore<std::string*> out(out_, &text);
    RETURN_IF_ERROR(bind_parameters(macro, args));
    RETURN_IF_ERROR(fill_defaults(macro));
    RETURN_IF_ERROR(run_block(macro.body));
  }
  line_ = line;
  return heap_.make_string(text);
}

Status Interpreter::bind_parameters(const Stmt& macro, const CallArgs& args) {
  std::vector<KeywordArg> keyword(args.keyword.begin(), args.keyword.end());
  const auto take = [&](std::string_view name) {
    for (auto it = keyword.begin(); it != keyword.end(); ++it) {
      if (it->first != name) continue;
      const Value value = it->second;
      keyword.erase(it);
      return value;
    }
    return Value();
  };
  const std::size_t count = macro.parameters.size();
  bool found_caller = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (parameter.symbol == kSymbolCaller) found_caller = true;
    scope_->set(parameter.symbol,
                i < args.positional.size() ? args.positional[i] : take(parameter.name));
  }
  if (macro.uses_caller && !found_caller) {
    Value caller = take("caller");
    if (caller.is_missing() || caller.is_none()) {
      caller = undefined_hint("No caller defined");
    }
    scope_->set(kSymbolCaller, caller);
  }
  const std::string name = macro.kind == StmtKind::kMacro ? quote(macro.text) : "None";
  if (macro.uses_kwargs) {
    std::vector<DictEntry> entries;
    for (const auto& [key, value] : keyword) entries.push_back({Value::string(key), value});
    scope_->set(kSymbolKwargs, heap_.make_dict(entries));
  } else if (!keyword.empty()) {
    if (!take("caller").is_missing()) {
      return type_error("macro " + name +
                        " was invoked with two values for the special caller argument. This is "
                        "most likely a bug.");
    }
    return type_error("macro " + name + " takes no keyword argument " +
                      quote(keyword.front().first));
  }
  const std::size_t given = std::min(args.positional.size(), count);
  if (macro.uses_varargs) {
    scope_->set(kSymbolVarargs, heap_.make_tuple(args.positional.subspan(given)));
  } else if (args.positional.size() > count) {
    return type_error("macro " + name + " takes not more than " + std::to_string(count) +
                      " argument(s)");
  }
  return {};
}

// Sets absent parameters to undefined first, then to their defaults from left to right.
Status Interpreter::fill_defaults(const Stmt& macro) {
  std::vector<const Parameter*> missing;
  for (const Parameter& parameter : macro.parameters) {
    if (!scope_->find(parameter.symbol)->is_missing()) continue;
    missing.push_back(&parameter);
    scope_->set(parameter.symbol, undefined(Value(), heap_.make_string(parameter.name)));
  }
  for (const Parameter* parameter : missing) {
    if (parameter->fallback) {
      ASSIGN_OR_RETURN(const Value value, eval(*parameter->fallback));
      scope_->set(parameter->symbol, value);
    } else {
      scope_->set(
          parameter->symbol,
          undefined_hint(heap_.store("parameter " + quote(parameter->name) + " was not provided")));
    }
  }
  return {};
}

Value Interpreter::undefined(Value object, Value name) {
  return heap_.make_undefined({"", object, name});
}

Value Interpreter::undefined_hint(std::string_view hint) {
  return heap_.make_undefined({hint, Value(), Value()});
}

}  // namespace sluice::jinja
