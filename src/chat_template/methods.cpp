#include "chat_template/methods.h"

#include <algorithm>
#include <string>

#include "chat_template/callables.h"
#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

Result<Value> get(Interpreter&, Args args) {
  if (!is_hashable(args[1])) {
    return type_error("unhashable type: '" + std::string(type_name(args[1])) + "'");
  }
  if (const Value* found = find(args[0].as_dict(), args[1])) return *found;
  return args[2].is_missing() ? Value::none() : args[2];
}

template <DictView::Part part>
Result<Value> view(Interpreter& in, Args args) {
  return Value::object(in.heap().make_object<DictView>(args[0].as_dict(), part));
}

// Lists and dicts never change, so a copy is the same value.
Result<Value> copy(Interpreter&, Args args) { return args[0]; }

Result<Value> count(Interpreter& in, Args args) {
  std::int64_t found = 0;
  for (const Value item : args[0].items()) found += equals(in.heap(), item, args[1]) ? 1 : 0;
  return Value::integer(found);
}

Result<Value> index(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const Value part, slice(in.heap(), args[0], args[2], args[3], Value()));
  const auto offset = part.items().empty() ? 0 : part.items().data() - args[0].items().data();
  for (std::size_t i = 0; i < part.items().size(); ++i) {
    if (equals(in.heap(), part.items()[i], args[1])) {
      return Value::integer(static_cast<std::int64_t>(i) + offset);
    }
  }
  return python_error(
      "ValueError", to_repr(in.heap(), args[1]) + " is not in " + std::string(type_name(args[0])));
}

// The place of `value` in a range, by equality: range(3).index(1.0) is 1; -1 when it is absent.
std::int64_t place_in(Heap& heap, const Range& range, Value value) {
  for (std::int64_t i = 0; i < range.size(); ++i) {
    if (equals(heap, Value::integer(range.at(i)), value)) return i;
  }
  return -1;
}

Result<Value> range_count(Interpreter& in, Args args) {
  const auto& range = static_cast<const Range&>(*args[0].as_object());
  return Value::integer(place_in(in.heap(), range, args[1]) < 0 ? 0 : 1);
}

Result<Value> range_index(Interpreter& in, Args args) {
  const auto& range = static_cast<const Range&>(*args[0].as_object());
  const std::int64_t place = place_in(in.heap(), range, args[1]);
  if (place >= 0) return Value::integer(place);
  return python_error("ValueError", args[1].is_integral()
                                        ? to_repr(in.heap(), args[1]) + " is not in range"
                                        : "sequence.index(x): x not in sequence");
}

Result<Value> is_integer(Interpreter&, Args args) {
  const double d = args[0].as_float();
  return Value::boolean(
      d == static_cast<double>(static_cast<long double>(d)) &&
      d - static_cast<double>(static_cast<std::int64_t>(std::clamp(d, -9e18, 9e18))) == 0);
}

constexpr Builtin kDictMethods[] = {
    {"copy", "self /", copy},
    {"get", "self key default? /", get},
    {"items", "self /", view<DictView::Part::kItems>},
    {"keys", "self /", view<DictView::Part::kKeys>},
    {"values", "self /", view<DictView::Part::kValues>},
};
constexpr Builtin kListMethods[] = {
    {"copy", "self /", copy},
    {"count", "self value /", count},
    {"index", "self value start? stop? /", index},
};
constexpr Builtin kRangeMethods[] = {
    {"count", "self value /", range_count},
    {"index", "self value /", range_index},
};
constexpr Builtin kFloatMethods[] = {{"is_integer", "self /", is_integer}};

std::span<const Builtin> methods_of(Value object) {
  switch (object.kind()) {
    case Kind::kString: return text_methods();
    case Kind::kDict: return kDictMethods;
    case Kind::kList: return kListMethods;
    case Kind::kTuple: return std::span<const Builtin>(kListMethods).subspan(1);
    case Kind::kFloat: return kFloatMethods;
    case Kind::kObject:
      if (object.as_object()->type() != ObjectType::kRange) return {};
      return kRangeMethods;
    default: return {};
  }
}

template <std::size_t size>
bool is_one_of(std::string_view name, const std::string_view (&names)[size]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Builtin* find_method(Value object, std::string_view name) {
  for (const Builtin& method : methods_of(object)) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

bool is_mutating_method(Value object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is(Kind::kList)) return is_one_of(name, kList);
  return object.is_dict() && is_one_of(name, kDict);
}

}  // namespace sluice::jinja
