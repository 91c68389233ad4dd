// Resolves a.b, a["b"] and calls as the sandboxed environment of jinja2 does.
#include "chat_template/callables.h"
#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

}  // namespace

// Returns a method, or an undefined value in place of a method that the sandbox refuses.
Value Interpreter::method_or_unsafe(Value object, std::string_view name) {
  const Builtin* method = find_method(object, name);
  if (method != nullptr) {
    return Value::object(heap_.make_object<BoundMethod>(object, *method));
  }
  if (!is_mutating_method(object, name) && !is_dunder(name)) return Value();
  return heap_.make_undefined({heap_.store("access to attribute " + quote(name) + " of " +
                                           quote(type_name(object)) + " object is unsafe."),
                               object, Value::string(name), "SecurityError"});
}

Value Interpreter::find_attribute(Value object, std::string_view name) {
  if (object.is(Kind::kTuple) && groups_.contains(object.items().data())) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (object.is(Kind::kObject)) {
    Object* o = object.as_object();
    if (o->type() == ObjectType::kNamespace) {
      if (const Value* found = static_cast<Namespace*>(o)->find(name)) return *found;
      return Value();
    }
    if (o->type() == ObjectType::kCallable) {
      const Value found = static_cast<Callable*>(o)->attribute(name);
      if (!found.is_missing()) return found;
    }
  }
  return method_or_unsafe(object, name);
}

Result<Value> Interpreter::get_attribute(Value object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is(Kind::kObject) && object.as_object()->type() == ObjectType::kLoop) {
    ASSIGN_OR_RETURN(const Value found,
                     static_cast<Loop*>(object.as_object())->attribute(*this, name));
    if (!found.is_missing()) return found;
  }
  const Value attribute = find_attribute(object, name);
  if (!attribute.is_missing()) return attribute;
  if (object.is_dict()) {
    if (const Value* item = find(object.as_dict(), name)) return *item;
  }
  return undefined(object, Value::string(name));
}

Result<Value> Interpreter::get_item(Value object, Value index) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is_dict()) {
    if (is_hashable(index)) {
      if (const Value* item = find(object.as_dict(), index)) return *item;
    }
  } else {
    const Value item = item_at(heap_, object, index);
    if (!item.is_missing()) return item;
  }
  if (index.is_string()) {
    if (object.is(Kind::kObject) && object.as_object()->type() == ObjectType::kLoop) {
      ASSIGN_OR_RETURN(const Value found,
                       static_cast<Loop*>(object.as_object())->attribute(*this, index.text()));
      if (!found.is_missing()) return found;
    }
    const Value attribute = find_attribute(object, index.text());
    if (!attribute.is_missing()) return attribute;
  }
  return undefined(object, index);
}

Result<Value> Interpreter::call(Value callee, const CallArgs& args) {
  if (callee.is_undefined()) return undefined_error(callee);
  if (callee.is(Kind::kObject)) {
    Object* object = callee.as_object();
    if (object->type() == ObjectType::kCallable) {
      return static_cast<Callable*>(object)->call(*this, args);
    }
    if (object->type() == ObjectType::kLoop) return static_cast<Loop*>(object)->call(*this, args);
  }
  return type_error("'" + std::string(type_name(callee)) + "' object is not callable");
}

}  // namespace sluice::jinja
