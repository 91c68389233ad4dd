// Arithmetic, slices and items (ops.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

Error unsupported_operands(Arithmetic op, Value a, Value b) {
  return type_error("unsupported operand type(s) for " +
                    std::string(kSymbols[static_cast<int>(op)]) + ": '" +
                    std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

Error integer_overflow() {
  return python_error("OverflowError", "integer result does not fit 64 bits");
}

Error division_by_zero(std::string_view message) {
  return python_error("ZeroDivisionError", message);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? quotient - 1 : quotient;
}

double floor_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

Result<Value> integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return division_by_zero("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return integer_overflow();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return integer_overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(Arithmetic op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return integer_overflow();
      return Value::integer(result);
    case Arithmetic::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return integer_overflow();
      return Value::integer(result);
    case Arithmetic::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return integer_overflow();
      return Value::integer(result);
    case Arithmetic::kDiv:
      if (b == 0) return division_by_zero("division by zero");
      return Value::real(static_cast<double>(static_cast<long double>(a) / b));
    case Arithmetic::kFloorDiv:
    case Arithmetic::kMod:
      if (b == 0) return division_by_zero("integer division or modulo by zero");
      if (b == -1) {  // the one quotient that overflows
        if (op == Arithmetic::kMod) return Value::integer(0);
        if (a == std::numeric_limits<std::int64_t>::min()) return integer_overflow();
        return Value::integer(-a);
      }
      if (op == Arithmetic::kFloorDiv) return Value::integer(floor_divide(a, b));
      return Value::integer(a - floor_divide(a, b) * b);
    case Arithmetic::kPow: return integer_power(a, b);
  }
  return integer_overflow();
}

Result<Value> float_arithmetic(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd: return Value::real(a + b);
    case Arithmetic::kSub: return Value::real(a - b);
    case Arithmetic::kMul: return Value::real(a * b);
    case Arithmetic::kDiv:
      if (b == 0) return division_by_zero("float division by zero");
      return Value::real(a / b);
    case Arithmetic::kFloorDiv: {
      if (b == 0) return division_by_zero("float floor division by zero");
      const double rest = floor_mod(a, b);
      double quotient = (a - rest) / b;
      quotient = quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient + 0.5);
      return Value::real(quotient);
    }
    case Arithmetic::kMod:
      if (b == 0) return division_by_zero("float modulo");
      return Value::real(floor_mod(a, b));
    case Arithmetic::kPow: {
      if (a == 0 && b < 0) return division_by_zero("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && std::floor(b) != b) {
        return python_error("TypeError", "complex results of ** are not supported");
      }
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return python_error("OverflowError", "(34, 'Numerical result out of range')");
      }
      return Value::real(result);
    }
  }
  return integer_overflow();
}

Result<Value> concatenate(Heap& heap, Value a, Value b) {
  if (a.is_string()) {
    if (!b.is_string()) {
      return type_error("can only concatenate str (not \"" + std::string(type_name(b)) +
                        "\") to str");
    }
    TextBuilder out(heap);
    const bool markup = a.is_markup() || b.is_markup();
    out.append(markup && !a.is_markup() ? escape_html(a.text()) : std::string(a.text()));
    out.append(markup && !b.is_markup() ? escape_html(b.text()) : std::string(b.text()));
    return out.finish(markup ? StringFlavor::kMarkup : StringFlavor::kPlain);
  }
  if (a.kind() != b.kind()) {
    const std::string type(type_name(a));
    return type_error("can only concatenate " + type + " (not \"" + std::string(type_name(b)) +
                      "\") to " + type);
  }
  const std::size_t count = a.items().size() + b.items().size();
  if (!heap.can_afford(count * sizeof(Value))) {
    heap.set_exceeded("the limit of memory for values");
    return a;
  }
  std::vector<Value> items(a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? heap.make_list(items) : heap.make_tuple(items);
}

Result<Value> repeat(Heap& heap, Value a, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  const std::size_t unit = a.is_string() ? a.text().size() : a.items().size() * sizeof(Value);
  if (unit == 0 || times == 0) {
    if (a.is_string()) return Value::string("", a.flavor());
    return a.is(Kind::kList) ? Value::list({}) : Value::tuple({});
  }
  if (times > std::numeric_limits<std::uint32_t>::max() || !heap.can_afford(unit * times)) {
    heap.set_exceeded("the limit of memory for values");
    return a;
  }
  if (a.is_string()) {
    TextBuilder out(heap);
    for (std::size_t i = 0; i < times; ++i) out.append(a.text());
    return out.finish(a.flavor());
  }
  std::vector<Value> items;
  items.reserve(a.items().size() * times);
  for (std::size_t i = 0; i < times; ++i) {
    items.insert(items.end(), a.items().begin(), a.items().end());
  }
  return a.is(Kind::kList) ? heap.make_list(items) : heap.make_tuple(items);
}

// The bounds of a slice over `length` items, as Python's slice.indices().
struct Bounds {
  std::int64_t start;
  std::int64_t step;
  std::int64_t count;
};

Result<Bounds> slice_bounds(Value start, Value stop, Value step, std::int64_t length) {
  for (const Value v : {start, stop, step}) {
    if (v.is_missing() || v.is_none() || v.is_integral()) continue;
    return type_error("slice indices must be integers or None or have an __index__ method");
  }
  const auto given = [](Value v) { return v.is_integral(); };
  const std::int64_t by = given(step) ? step.as_int() : 1;
  if (by == 0) return python_error("ValueError", "slice step cannot be zero");
  const std::int64_t lowest = by < 0 ? -1 : 0;
  const std::int64_t highest = by < 0 ? length - 1 : length;
  const auto clamp = [&](Value v, std::int64_t otherwise) {
    if (!given(v)) return otherwise;
    const std::int64_t at = v.as_int() < 0 ? v.as_int() + length : v.as_int();
    return std::clamp(at, lowest, highest);
  };
  const std::int64_t from = clamp(start, by < 0 ? highest : lowest);
  const std::int64_t to = clamp(stop, by < 0 ? lowest : highest);
  const Range range(from, to, by < -length - 1 ? -length - 1 : by > length + 1 ? length + 1 : by);
  return Bounds{from, range.step, range.size()};
}

Value slice_text(Heap& heap, Value value, const Bounds& bounds) {
  const std::string_view text = value.text();
  if (bounds.count == 0) return Value::string("", value.flavor());
  if (bounds.step == 1) {
    const std::size_t begin = byte_offset(text, static_cast<std::size_t>(bounds.start));
    const std::string_view tail = text.substr(begin);
    const std::size_t size = byte_offset(tail, static_cast<std::size_t>(bounds.count));
    return Value::string(tail.substr(0, size), value.flavor());
  }
  if (!heap.can_afford(text.size() * 2)) {
    heap.set_exceeded("the limit of memory for values");
    return value;
  }
  std::vector<std::uint32_t> starts;
  for (std::size_t i = 0; i < text.size();) {
    starts.push_back(static_cast<std::uint32_t>(i));
    next_code_point(text, &i);
  }
  TextBuilder out(heap);
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const std::size_t begin = starts[static_cast<std::size_t>(bounds.start + i * bounds.step)];
    std::size_t end = begin;
    next_code_point(text, &end);
    out.append(text.substr(begin, end - begin));
  }
  return out.finish(value.flavor());
}

}  // namespace

Result<Value> arithmetic(Heap& heap, Arithmetic op, Value a, Value b) {
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined() && op == Arithmetic::kMul && a.is_markup()) {
    return type_error("'Undefined' object cannot be interpreted as an integer");
  }
  if (b.is_undefined()) return undefined_error(b);
  const auto numeric = [](Value v) { return v.is_number() || v.is(Kind::kBigInt); };
  const bool repeats = op == Arithmetic::kMul && !(numeric(a) && numeric(b));
  if ((a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) && (repeats || (numeric(a) && numeric(b)))) {
    return python_error("OverflowError", "arithmetic on integers beyond 64 bits is not supported");
  }
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) {
    const auto real = [](Value v) {
      return v.is(Kind::kFloat) ? v.as_float() : static_cast<double>(v.as_int());
    };
    return float_arithmetic(op, real(a), real(b));
  }
  const auto repeatable = [](Value v) { return v.is_string() || v.is_sequence(); };
  if (op == Arithmetic::kAdd && repeatable(a)) return concatenate(heap, a, b);
  if (op == Arithmetic::kMul) {
    if (repeatable(a) && b.is_integral()) return repeat(heap, a, b.as_int());
    if (repeatable(b) && a.is_integral()) return repeat(heap, b, a.as_int());
    if (repeatable(a) || repeatable(b)) {
      return type_error("can't multiply sequence by non-int of type '" +
                        std::string(type_name(repeatable(a) ? b : a)) + "'");
    }
  }
  return unsupported_operands(op, a, b);
}

Result<Value> negate(Value value) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_float());
  if (value.is_integral()) {
    if (value.as_int() == std::numeric_limits<std::int64_t>::min()) return integer_overflow();
    return Value::integer(-value.as_int());
  }
  return type_error("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
}

Result<Value> slice(Heap& heap, Value value, Value start, Value stop, Value step) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.is_dict()) return type_error("unhashable type: 'slice'");
  const bool is_range = value.is(Kind::kObject) && value.as_object()->type() == ObjectType::kRange;
  if (!value.is_string() && !value.is_sequence() && !is_range) {
    return type_error("'" + std::string(type_name(value)) + "' object is not subscriptable");
  }
  ASSIGN_OR_RETURN(const Bounds bounds, slice_bounds(start, stop, step, length_of(heap, value)));
  if (is_range) {
    const auto& range = static_cast<const Range&>(*value.as_object());
    const std::int64_t first = range.at(bounds.start);
    const std::int64_t by = range.step * bounds.step;
    return Value::object(heap.make_object<Range>(first, first + by * bounds.count, by));
  }
  if (value.is_string()) return slice_text(heap, value, bounds);
  const auto first = static_cast<std::size_t>(bounds.start);
  const auto count = static_cast<std::size_t>(bounds.count);
  const auto wrap = [&](std::span<const Value> items) {
    return value.is(Kind::kList) ? Value::list(items) : Value::tuple(items);
  };
  if (count == 0) return wrap({});
  if (bounds.step == 1) return wrap(value.items().subspan(first, count));
  std::vector<Value> items;
  heap.step(count);
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(value.items()[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  }
  return value.is(Kind::kList) ? heap.make_list(items) : heap.make_tuple(items);
}

Value item_at(Heap& heap, Value value, Value index) {
  if (!index.is_integral()) return Value();
  const std::int64_t length = length_of(heap, value);
  std::int64_t at = index.as_int();
  if (at < 0) at += length;
  if (at < 0 || at >= length) return Value();
  if (value.is_sequence()) return value.items()[static_cast<std::size_t>(at)];
  if (value.is_string()) {
    const std::size_t begin = byte_offset(value.text(), static_cast<std::size_t>(at));
    std::size_t end = begin;
    next_code_point(value.text(), &end);
    return Value::string(value.text().substr(begin, end - begin), value.flavor());
  }
  if (value.is(Kind::kObject) && value.as_object()->type() == ObjectType::kRange) {
    return Value::integer(static_cast<const Range&>(*value.as_object()).at(at));
  }
  return Value();
}

}  // namespace sluice::jinja
