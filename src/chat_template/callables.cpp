#include "chat_template/callables.h"

#include <algorithm>

#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

// loop.cycle and loop.changed.
class LoopFunction final : public Callable {
 public:
  enum class Which : std::uint8_t { kCycle, kChanged };
  LoopFunction(Loop& loop, Which which) : Callable("method"), loop_(loop), which_(which) {}
  Result<Value> call(Interpreter& interpreter, const CallArgs& args) override {
    if (which_ == Which::kCycle) return loop_.cycle(args);
    return Value::boolean(loop_.changed(interpreter, args));
  }

 private:
  Loop& loop_;
  Which which_;
};

}  // namespace

Result<Value> BoundMethod::call(Interpreter& interpreter, const CallArgs& args) {
  std::vector<Value> positional;
  positional.reserve(args.positional.size() + 1);
  positional.push_back(self_);
  positional.insert(positional.end(), args.positional.begin(), args.positional.end());
  return call_builtin(interpreter, method_, {positional, args.keyword});
}

Result<Value> GlobalFunction::call(Interpreter& interpreter, const CallArgs& args) {
  return call_builtin(interpreter, function_, args);
}

Result<Value> Macro::call(Interpreter& interpreter, const CallArgs& args) {
  return interpreter.call_macro(statement_, scope_, args);
}

std::string Macro::describe() const {
  return statement_.kind == StmtKind::kMacro ? "<Macro " + quote(statement_.text) + ">"
                                             : "<Macro anonymous>";
}

Value Macro::attribute(std::string_view name) const {
  if (name == "name") {
    return statement_.kind == StmtKind::kMacro ? Value::string(statement_.text) : Value::none();
  }
  if (name == "catch_kwargs") return Value::boolean(statement_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(statement_.uses_varargs);
  if (name == "caller") return Value::boolean(statement_.uses_caller);
  return Value();
}

Result<bool> Loop::fetch(Interpreter& interpreter, Value* item) {
  if (rest_next_ < rest_.size()) {
    *item = rest_[rest_next_++];
    return true;
  }
  return source_.next(interpreter, item);
}

Result<bool> Loop::advance(Interpreter& interpreter, Value* item) {
  Value next = after_;
  after_ = Value();
  if (next.is_missing()) {
    ASSIGN_OR_RETURN(const bool more, fetch(interpreter, &next));
    if (!more) return false;
  }
  ++index0_;
  before_ = current_;
  current_ = next;
  *item = next;
  return true;
}

Result<Value> Loop::peek(Interpreter& interpreter) {
  if (after_.is_missing()) RETURN_IF_ERROR(fetch(interpreter, &after_));
  return after_;
}

Result<std::int64_t> Loop::length(Interpreter& interpreter) {
  if (length_ >= 0) return length_;
  Value item;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, source_.next(interpreter, &item));
    if (!more) break;
    interpreter.heap().charge(sizeof(Value));
    RETURN_IF_ERROR(interpreter.check_budget());
    rest_.push_back(item);
  }
  length_ = static_cast<std::int64_t>(rest_.size() - rest_next_) + index0_ + 1 +
            (after_.is_missing() ? 0 : 1);
  return length_;
}

Result<Value> Loop::attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "index0") return Value::integer(index0_);
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "depth0") return Value::integer(depth0_);
  if (name == "depth") return Value::integer(depth0_ + 1);
  if (name == "last") {
    ASSIGN_OR_RETURN(const Value after, peek(interpreter));
    return Value::boolean(after.is_missing());
  }
  if (name == "nextitem") {
    ASSIGN_OR_RETURN(const Value after, peek(interpreter));
    return after.is_missing() ? interpreter.undefined_hint("there is no next item") : after;
  }
  if (name == "previtem") {
    return index0_ == 0 ? interpreter.undefined_hint("there is no previous item") : before_;
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    ASSIGN_OR_RETURN(const std::int64_t count, length(interpreter));
    if (name == "length") return Value::integer(count);
    return Value::integer(count - index0_ - (name == "revindex0" ? 1 : 0));
  }
  if (name == "cycle" || name == "changed") {
    return Value::object(interpreter.heap().make_object<LoopFunction>(
        *this, name == "cycle" ? LoopFunction::Which::kCycle : LoopFunction::Which::kChanged));
  }
  return Value();
}

Result<Value> Loop::cycle(const CallArgs& args) const {
  if (args.positional.empty()) return type_error("no items for cycling given");
  return args.positional[static_cast<std::size_t>(index0_) % args.positional.size()];
}

bool Loop::changed(Interpreter& interpreter, const CallArgs& args) {
  Heap& heap = interpreter.heap();
  const Value now = heap.make_tuple(args.positional);
  if (!last_changed_.is_missing() && equals(heap, last_changed_, now)) return false;
  last_changed_ = now;
  return true;
}

Result<Value> Loop::call(Interpreter& interpreter, const CallArgs& args) {
  if (!statement_.recursive) {
    return type_error("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.positional.size() != 1 || !args.keyword.empty()) {
    return type_error("LoopContext.__call__() takes one argument: the iterable");
  }
  return interpreter.call_loop(statement_, scope_, args.positional[0], depth0_ + 1);
}

}  // namespace sluice::jinja
