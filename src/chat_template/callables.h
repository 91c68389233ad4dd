// Functions, methods, macros and the loop variable as values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/ast.h"
#include "chat_template/builtins.h"
#include "chat_template/interpreter.h"
#include "chat_template/object.h"

namespace sluice::jinja {

// A method of a string, list, tuple or dict with its object.
class BoundMethod final : public Callable {
 public:
  BoundMethod(Value self, const Builtin& method)
      : Callable("builtin_function_or_method"), self_(self), method_(method) {}
  Result<Value> call(Interpreter& interpreter, const CallArgs& args) override;

 private:
  Value self_;
  const Builtin& method_;
};

// range, namespace, raise_exception, ...
class GlobalFunction final : public Callable {
 public:
  explicit GlobalFunction(const Builtin& function) : Callable("function"), function_(function) {}
  Result<Value> call(Interpreter& interpreter, const CallArgs& args) override;

 private:
  const Builtin& function_;
};

class Macro final : public Callable {
 public:
  Macro(const Stmt& statement, Scope* scope)
      : Callable("Macro"), statement_(statement), scope_(scope) {}
  Result<Value> call(Interpreter& interpreter, const CallArgs& args) override;
  Value attribute(std::string_view name) const override;
  std::string describe() const override;

 private:
  const Stmt& statement_;
  Scope* scope_;
};

// The `loop` variable, which also drives the loop.
class Loop final : public Object {
 public:
  // known_length: -1 when the iterable has none.
  Loop(const Stmt& statement, Scope* scope, Iterator& source, std::int64_t known_length, int depth0)
      : Object(ObjectType::kLoop),
        statement_(statement),
        scope_(scope),
        source_(source),
        length_(known_length),
        depth0_(depth0) {}
  std::string_view type_name() const override { return "LoopContext"; }

  // Moves to the next item; false at the end.
  Result<bool> advance(Interpreter& interpreter, Value* item);
  // kMissing when there is no such attribute.
  Result<Value> attribute(Interpreter& interpreter, std::string_view name);
  Result<Value> call(Interpreter& interpreter, const CallArgs& args);
  Result<Value> cycle(const CallArgs& args) const;
  bool changed(Interpreter& interpreter, const CallArgs& args);

 private:
  Result<bool> fetch(Interpreter& interpreter, Value* item);
  Result<Value> peek(Interpreter& interpreter);
  Result<std::int64_t> length(Interpreter& interpreter);

  const Stmt& statement_;
  Scope* scope_;  // around the loop
  Iterator& source_;
  std::int64_t length_;
  int depth0_;
  std::int64_t index0_ = -1;
  Value before_;
  Value current_;
  Value after_;  // peeked; kMissing when not
  std::vector<Value> rest_;
  std::size_t rest_next_ = 0;
  Value last_changed_;
};

// A function over all global functions, for the interpreter's symbol table; kMissing if unknown.
const Builtin* find_global(std::string_view name);
// The method of a value's type, or null.
const Builtin* find_method(Value object, std::string_view name);
// True for methods that would change a list or dict: the sandbox refuses them.
bool is_mutating_method(Value object, std::string_view name);

}  // namespace sluice::jinja
