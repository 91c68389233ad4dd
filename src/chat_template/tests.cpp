// The tests: the names that may follow `is`.
#include <algorithm>
#include <string>

#include "chat_template/builtins.h"
#include "chat_template/format.h"
#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

template <bool (*predicate)(Value)>
Result<Value> test(Interpreter&, Args args) {
  return Value::boolean(predicate(args[0]));
}

bool defined(Value v) { return !v.is_undefined(); }
bool undefined(Value v) { return v.is_undefined(); }
bool none(Value v) { return v.is_none(); }
bool boolean(Value v) { return v.is(Kind::kBool); }
bool is_false(Value v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_true(Value v) { return v.is(Kind::kBool) && v.as_bool(); }
bool integer(Value v) { return v.is(Kind::kInt) || v.is(Kind::kBigInt); }
bool floating(Value v) { return v.is(Kind::kFloat); }
bool string(Value v) { return v.is_string(); }
bool mapping(Value v) { return v.is_dict(); }
bool number(Value v) { return v.is_number() || v.is(Kind::kBigInt); }
bool escaped(Value v) { return v.is_markup(); }
bool has_type(Value v, ObjectType type) {
  return v.is(Kind::kObject) && v.as_object()->type() == type;
}
bool callable(Value v) {
  // Undefined has a __call__, which only fails when it is used.
  return v.is_undefined() || has_type(v, ObjectType::kCallable) || has_type(v, ObjectType::kLoop);
}
bool sequence(Value v) {
  // Undefined answers to len() and [] (the latter with an error that the test swallows).
  return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined() ||
         has_type(v, ObjectType::kRange);
}
bool iterable(Value v) {
  return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined() ||
         has_type(v, ObjectType::kRange) || has_type(v, ObjectType::kDictView) ||
         has_type(v, ObjectType::kIterator) || has_type(v, ObjectType::kLoop);
}

template <bool (*has_case)(char32_t), bool (*other_case)(char32_t)>
Result<Value> cased(Interpreter& in, Args args) {
  const std::string_view text = to_text(in.heap(), args[0]);
  in.heap().scan(text.size());
  bool any = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, &i);
    if (other_case(c)) return Value::boolean(false);
    any = any || has_case(c);
  }
  return Value::boolean(any);
}

Result<Value> modulo(Interpreter& in, Value value, Value by) {
  if (value.is_string()) return format_percent(in, value, by);  // what Python's "%" does then
  return arithmetic(in.heap(), Arithmetic::kMod, value, by);
}

template <std::int64_t expected>
Result<Value> parity(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const Value rest, modulo(in, args[0], Value::integer(2)));
  return Value::boolean(equals(in.heap(), rest, Value::integer(expected)));
}

Result<Value> divisible_by(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const Value rest, modulo(in, args[0], args[1]));
  return Value::boolean(equals(in.heap(), rest, Value::integer(0)));
}

Result<Value> equal(Interpreter& in, Args args) {
  return Value::boolean(equals(in.heap(), args[0], args[1]));
}
Result<Value> not_equal(Interpreter& in, Args args) {
  return Value::boolean(!equals(in.heap(), args[0], args[1]));
}

template <Order order>
Result<Value> ordered(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const bool holds, compare(in.heap(), order, args[0], args[1]));
  return Value::boolean(holds);
}

Result<Value> inside(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const bool found, in.contains(args[1], args[0]));
  return Value::boolean(found);
}

Result<Value> same_as(Interpreter&, Args args) {
  const Value a = args[0];
  const Value b = args[1];
  if (a.is_none() || b.is_none()) return Value::boolean(a.is_none() && b.is_none());
  return Value::boolean(a.same_identity(b));
}

// Both look the name up in a dict, so the name must be hashable.
Status check_hashable(Value value) {
  if (is_hashable(value)) return {};
  return type_error("unhashable type: '" + std::string(type_name(value)) + "'");
}

Result<Value> filter(Interpreter&, Args args) {
  RETURN_IF_ERROR(check_hashable(args[0]));
  return Value::boolean(args[0].is_string() && find_filter(args[0].text()) != nullptr);
}
Result<Value> test_exists(Interpreter&, Args args) {
  RETURN_IF_ERROR(check_hashable(args[0]));
  return Value::boolean(args[0].is_string() && find_test(args[0].text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", "a b", not_equal},
    {"<", "a b", ordered<Order::kLess>},
    {"<=", "a b", ordered<Order::kLessEqual>},
    {"==", "a b", equal},
    {">", "a b", ordered<Order::kGreater>},
    {">=", "a b", ordered<Order::kGreaterEqual>},
    {"boolean", "value", test<boolean>},
    {"callable", "value", test<callable>},
    {"defined", "value", test<defined>},
    {"divisibleby", "value num", divisible_by},
    {"eq", "a b", equal},
    {"equalto", "a b", equal},
    {"escaped", "value", test<escaped>},
    {"even", "value", parity<0>},
    {"false", "value", test<is_false>},
    {"filter", "value", filter},
    {"float", "value", test<floating>},
    {"ge", "a b", ordered<Order::kGreaterEqual>},
    {"greaterthan", "a b", ordered<Order::kGreater>},
    {"gt", "a b", ordered<Order::kGreater>},
    {"in", "value seq", inside},
    {"integer", "value", test<integer>},
    {"iterable", "value", test<iterable>},
    {"le", "a b", ordered<Order::kLessEqual>},
    {"lessthan", "a b", ordered<Order::kLess>},
    {"lower", "value", cased<is_lower, is_upper>},
    {"lt", "a b", ordered<Order::kLess>},
    {"mapping", "value", test<mapping>},
    {"ne", "a b", not_equal},
    {"none", "value", test<none>},
    {"number", "value", test<number>},
    {"odd", "value", parity<1>},
    {"sameas", "value other", same_as},
    {"sequence", "value", test<sequence>},
    {"string", "value", test<string>},
    {"test", "value", test_exists},
    {"true", "value", test<is_true>},
    {"undefined", "value", test<undefined>},
    {"upper", "value", cased<is_upper, is_lower>},
};

}  // namespace

std::span<const Builtin> all_tests() { return kTests; }

}  // namespace sluice::jinja
