// Filters on numbers and on single values.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "chat_template/builtins.h"
#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

double as_real(Value v) {
  return v.is(Kind::kFloat) ? v.as_float() : static_cast<double>(v.as_int());
}

// int(float): rounds towards zero; nullopt when the result does not fit 64 bits.
std::optional<std::int64_t> truncated(double d) {
  if (!std::isfinite(d) || d >= 0x1p63 || d < -0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(d);
}

Result<Value> absolute(Interpreter&, Args args) {
  const Value v = args[0];
  if (v.is(Kind::kFloat)) return Value::real(std::fabs(v.as_float()));
  if (v.is_integral()) return v.as_int() < 0 ? negate(v) : Value::integer(v.as_int());
  return type_error("bad operand type for abs(): '" + std::string(type_name(v)) + "'");
}

Result<Value> integer(Interpreter&, Args args) {
  const Value v = args[0];
  const Value otherwise = args[1].is_missing() ? Value::integer(0) : args[1];
  if (v.is_undefined()) return undefined_error(v);
  if (v.is(Kind::kBigInt)) return v;
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is(Kind::kFloat)) {
    const auto whole = truncated(v.as_float());
    if (whole) return Value::integer(*whole);
    // int(inf) raises OverflowError, which jinja2 lets through; int(nan) is a ValueError.
    if (std::isinf(v.as_float())) {
      return python_error("OverflowError", "cannot convert float infinity to integer");
    }
    if (std::isnan(v.as_float())) return otherwise;
    return python_error("OverflowError", "integer result does not fit 64 bits");
  }
  if (!v.is_string()) return otherwise;
  std::int64_t base = 10;
  if (!args[2].is_missing()) {
    if (!args[2].is_integral()) return not_an_integer(args[2]);
    base = args[2].as_int();
    if (base != 0 && (base < 2 || base > 36)) base = -1;  // a ValueError in Python
  }
  if (base >= 0) {
    if (const auto parsed = parse_integer(v.text(), static_cast<int>(base))) {
      return Value::integer(*parsed);
    }
  }
  if (const auto real = parse_float(v.text())) {
    if (const auto whole = truncated(*real)) return Value::integer(*whole);
    // int('inf') and int('nan') are errors, for which the filter has its default.
    if (std::isfinite(*real)) {
      return python_error("OverflowError", "integer result does not fit 64 bits");
    }
  }
  return otherwise;
}

Result<Value> floating(Interpreter&, Args args) {
  const Value v = args[0];
  if (v.is_undefined()) return undefined_error(v);
  if (v.is_number()) return Value::real(as_real(v));
  if (v.is_string() || v.is(Kind::kBigInt)) {
    if (const auto real = parse_float(v.text())) return Value::real(*real);
  }
  return args[1].is_missing() ? Value::real(0.0) : args[1];
}

// round(x, n) as CPython does it: through the correctly rounded decimal text.
double round_decimal(double d, std::int64_t digits) {
  if (!std::isfinite(d) || digits > 323) return d;
  if (digits < -308) return std::copysign(0.0, d);
  if (digits >= 0) {
    char text[700];
    std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(digits), d);
    return parse_float(text).value_or(d);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / unit) * unit;
}

Result<Value> round(Interpreter&, Args args) {
  const Value v = args[0];
  std::int64_t digits = 0;
  if (!args[1].is_missing()) {
    if (!args[1].is_integral()) return not_an_integer(args[1]);
    digits = args[1].as_int();
  }
  const std::string_view method = args[2].is_missing()  ? "common"
                                  : args[2].is_string() ? args[2].text()
                                                        : "";
  if (method != "common" && method != "ceil" && method != "floor") {
    return python_error("FilterArgumentError", "method must be common, ceil or floor");
  }
  if (!v.is_number()) {
    if (v.is_undefined() && method != "common") return undefined_error(v);
    return type_error("type " + std::string(type_name(v)) + " doesn't define __round__ method");
  }
  if (method == "common") {
    if (v.is(Kind::kFloat)) return Value::real(round_decimal(v.as_float(), digits));
    if (digits >= 0) return Value::integer(v.as_int());
    if (digits < -18) return Value::integer(0);
    std::int64_t unit = 1;
    for (std::int64_t i = digits; i < 0; ++i) unit *= 10;
    std::int64_t quotient = v.as_int() / unit;
    const std::int64_t rest = std::abs(v.as_int() % unit);
    if (rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0)) {
      quotient += v.as_int() < 0 ? -1 : 1;
    }
    std::int64_t product = 0;
    if (__builtin_mul_overflow(quotient, unit, &product)) {
      return python_error("OverflowError", "integer result does not fit 64 bits");
    }
    return Value::integer(product);
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = as_real(v) * scale;
  if (!std::isfinite(scaled)) {
    return python_error("OverflowError", "cannot convert float infinity to integer");
  }
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> fall_back(Interpreter&, Args args) {
  const bool use = args[0].is_undefined() || (is_truthy(args[2]) && !is_truthy(args[0]));
  if (!use) return args[0];
  return args[1].is_missing() ? Value::string("") : args[1];
}

Result<Value> attribute(Interpreter& in, Args args) {
  if (!args[1].is_string()) {
    return type_error("attribute name must be string, not '" + std::string(type_name(args[1])) +
                      "'");
  }
  if (args[0].is_undefined()) return undefined_error(args[0]);
  const Value found = in.find_attribute(args[0], args[1].text());
  return found.is_missing() ? in.undefined(args[0], args[1]) : found;
}

Result<Value> file_size(Interpreter& in, Args args) {
  double bytes = 0;
  if (args[0].is_number()) {
    bytes = as_real(args[0]);
  } else if (args[0].is_string() && parse_float(args[0].text())) {
    bytes = *parse_float(args[0].text());
  } else {
    return python_error("ValueError", "filesizeformat needs a number");
  }
  const bool binary = is_truthy(args[1]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::string("1 Byte");
  char text[400];
  if (bytes < base) {
    std::snprintf(text, sizeof(text), "%.0f Bytes", std::trunc(bytes));
    return in.heap().make_string(text);
  }
  static constexpr const char* kPrefixes[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base;
  const char* prefix = "";
  for (const char* candidate : kPrefixes) {
    unit *= base;
    prefix = candidate;
    if (bytes < unit) break;
  }
  const std::string name =
      binary ? (*prefix == 'k' ? "K" : prefix) + std::string("iB") : prefix + std::string("B");
  std::snprintf(text, sizeof(text), "%.1f ", base * bytes / unit);
  return in.heap().make_string(text + name);
}

constexpr Builtin kFilters[] = {
    {"abs", "x", absolute},
    {"attr", "obj name", attribute},
    {"d", "value default_value? boolean?", fall_back},
    {"default", "value default_value? boolean?", fall_back},
    {"filesizeformat", "value binary?", file_size},
    {"float", "value default?", floating},
    {"int", "value default? base?", integer},
    {"round", "value precision? method?", round},
};

}  // namespace

std::span<const Builtin> number_filters() { return kFilters; }

}  // namespace sluice::jinja
