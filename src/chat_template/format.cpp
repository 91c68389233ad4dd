#include "chat_template/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

// Larger widths and precisions are refused; no real template needs them.
constexpr int kMaxWidth = 10'000;
constexpr int kMaxPrecision = 300;

struct Spec {
  std::string_view fill = " ";
  char align = '\0';  // '<' '>' '^' '='
  char sign = '\0';   // '+' ' '
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  int width = 0;
  int precision = -1;
  char type = '\0';
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads digits; -1 when they are too many.
int read_number(std::string_view text, std::size_t* i, int limit) {
  int value = 0;
  while (*i < text.size() && is_digit(text[*i])) {
    value = value * 10 + (text[(*i)++] - '0');
    if (value > limit) return -1;
  }
  return value;
}

Error value_error(std::string_view message) { return python_error("ValueError", message); }

std::string grouped(const std::string& digits, char separator, std::size_t size) {
  const std::size_t whole = std::min(digits.find_first_of(".e"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

std::string in_base(std::uint64_t magnitude, unsigned base, bool upper) {
  const char* digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), digits[magnitude % base]);
    magnitude /= base;
  } while (magnitude != 0);
  return out;
}

// The digits of a float without its sign, for types e E f F g G % and none.
std::string float_digits(double d, const Spec& spec) {
  const double magnitude = std::fabs(d);
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (std::isnan(d)) return upper ? "NAN" : "nan";
  if (std::isinf(d)) return upper ? "INF" : "inf";
  if (spec.type == '\0' && spec.precision < 0) return float_text(magnitude);
  char conversion = spec.type == '\0' ? 'g' : spec.type == 'n' ? 'g' : spec.type;
  double value = magnitude;
  if (conversion == '%') {
    conversion = 'f';
    value *= 100;
  }
  const char pattern[] = {'%',
                          spec.alternate ? '#' : '.',
                          spec.alternate ? '.' : '*',
                          spec.alternate ? '*' : conversion,
                          spec.alternate ? conversion : '\0',
                          '\0'};
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  char buffer[800];
  std::snprintf(buffer, sizeof(buffer), pattern, precision, value);
  std::string text = buffer;
  // A float without a type keeps a digit after the point.
  if (spec.type == '\0' && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + (spec.type == '%' ? "%" : "");
}

std::string padded(std::string_view text, std::string_view sign, const Spec& spec, char otherwise) {
  const auto length =
      static_cast<int>(utf8::count_code_points(text)) + static_cast<int>(sign.size());
  const char align = spec.align == '\0' ? otherwise : spec.align;
  const int missing = std::max(0, spec.width - length);
  int left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const int right = missing - left;
  std::string out;
  if (align == '=') out += sign;
  for (; left > 0; --left) out += spec.fill;
  if (align != '=') out += sign;
  out += text;
  for (int i = 0; i < right; ++i) out += spec.fill;
  return out;
}

std::string_view sign_of(bool negative, const Spec& spec) {
  return negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

Result<std::string> format_integer(std::int64_t value, const Spec& spec) {
  const bool negative = value < 0;
  const std::uint64_t magnitude =
      negative ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'i':
    case 'u':
    case 'n': digits = std::to_string(magnitude); break;
    case 'x':
      digits = in_base(magnitude, 16, false);
      prefix = "0x";
      break;
    case 'X':
      digits = in_base(magnitude, 16, true);
      prefix = "0X";
      break;
    case 'o':
      digits = in_base(magnitude, 8, false);
      prefix = "0o";
      break;
    case 'b':
      digits = in_base(magnitude, 2, false);
      prefix = "0b";
      break;
    case 'c':
      if (negative || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
        return python_error("OverflowError", "%c arg not in range(0x110000)");
      }
      utf8::append(static_cast<char32_t>(value), digits);
      return padded(digits, "", spec, '<');
    default:
      return value_error("Unknown format code '" + std::string(1, spec.type) +
                         "' for object of type 'int'");
  }
  if (spec.precision > static_cast<int>(digits.size())) {
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.grouping != '\0') {
    digits = grouped(digits, spec.grouping, prefix.empty() ? 3 : 4);
  }
  std::string sign(sign_of(negative, spec));
  if (spec.alternate) sign += prefix;
  return padded(digits, sign, spec, '>');
}

std::string format_float(double value, const Spec& spec) {
  std::string digits = float_digits(value, spec);
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping, 3);
  return padded(digits, sign_of(std::signbit(value) && !std::isnan(value), spec), spec, '>');
}

std::string format_string(std::string_view text, const Spec& spec) {
  if (spec.precision >= 0) {
    text = text.substr(0, byte_offset(text, static_cast<std::size_t>(spec.precision)));
  }
  return padded(std::string(text), "", spec, '<');
}

// --- "%": flags, width, precision and a conversion.

class Percent {
 public:
  Percent(Interpreter& in, std::string_view format, Value argument)
      : in_(in), format_(format), argument_(argument), out_(in.heap()) {
    if (argument.is(Kind::kTuple)) {
      items_ = argument.items();
    } else {
      items_ = {&argument_, 1};
    }
  }

  Result<Value> run() {
    for (std::size_t i = 0; i < format_.size();) {
      const std::size_t percent = std::min(format_.find('%', i), format_.size());
      out_.append(format_.substr(i, percent - i));
      if (percent == format_.size()) break;
      i = percent + 1;
      RETURN_IF_ERROR(conversion(&i));
      RETURN_IF_ERROR(in_.check_budget());
    }
    if (used_ < items_.size() && !argument_.is_dict() && !named_ && !is_mapping_like()) {
      return type_error("not all arguments converted during string formatting");
    }
    return out_.finish();
  }

 private:
  // Python lets arguments with [] that are no tuple and no string go unused.
  bool is_mapping_like() const {
    return argument_.is_dict() || argument_.is(Kind::kList) || argument_.is_undefined() ||
           (argument_.is(Kind::kObject) && argument_.as_object()->type() == ObjectType::kRange);
  }

  Result<Value> next_argument() {
    if (used_ >= items_.size()) return type_error("not enough arguments for format string");
    return items_[used_++];
  }

  Status conversion(std::size_t* i) {
    Spec spec;
    Value value;
    if (*i < format_.size() && format_[*i] == '(') {
      const std::size_t close = format_.find(')', *i);
      if (close == std::string_view::npos) return value_error("incomplete format key");
      if (!argument_.is_dict()) return type_error("format requires a mapping");
      const std::string_view key = format_.substr(*i + 1, close - *i - 1);
      const Value* found = find(argument_.as_dict(), key);
      if (found == nullptr) return python_error("KeyError", quote(key));
      value = *found;
      named_ = true;
      *i = close + 1;
    }
    for (; *i < format_.size() &&
           std::string_view("-+ #0").find(format_[*i]) != std::string_view::npos;
         ++*i) {
      const char flag = format_[*i];
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign == '\0')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.fill = "0";
    }
    RETURN_IF_ERROR(size(i, &spec.width, kMaxWidth));
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (*i < format_.size() && format_[*i] == '.') {
      ++*i;
      spec.precision = 0;
      RETURN_IF_ERROR(size(i, &spec.precision, kMaxPrecision));
    }
    while (*i < format_.size() &&
           (format_[*i] == 'l' || format_[*i] == 'h' || format_[*i] == 'L')) {
      ++*i;
    }
    if (*i >= format_.size()) return value_error("incomplete format");
    spec.type = format_[(*i)++];
    return append(spec, value);
  }

  Status size(std::size_t* i, int* out, int limit) {
    if (*i < format_.size() && format_[*i] == '*') {
      ++*i;
      ASSIGN_OR_RETURN(const Value v, next_argument());
      if (!v.is_integral()) return type_error("* wants int");
      if (std::abs(v.as_int()) > limit) return value_error("width or precision too big");
      *out = static_cast<int>(v.as_int());
    } else if (*i < format_.size() && is_digit(format_[*i])) {
      *out = read_number(format_, i, limit);
      if (*out < 0) return value_error("width or precision too big");
    }
    return {};
  }

  Status append(Spec spec, Value value) {
    if (spec.type == '%') {
      out_.append("%");
      return {};
    }
    if (value.is_missing()) {
      ASSIGN_OR_RETURN(value, next_argument());
    }
    const bool text = spec.type == 's' || spec.type == 'r' || spec.type == 'a';
    if (text || (spec.type == 'c' && value.is_string())) {
      spec.fill = " ";
      if (spec.type == 'c' && length_of(in_.heap(), value) != 1) {
        return type_error("%c requires int or char");
      }
      if (spec.align == '\0') spec.align = '>';
      const std::string shown = spec.type == 's' || spec.type == 'c'
                                    ? std::string(to_text(in_.heap(), value))
                                    : to_repr(in_.heap(), value);
      out_.append(format_string(shown, spec));
      return {};
    }
    if (spec.fill == "0" && spec.align == '\0') spec.align = '=';
    if (spec.align == '<') spec.fill = " ";
    return append_number(spec, value);
  }

  Status append_number(const Spec& spec, Value value) {
    const std::string_view integers = "diuxXoc";
    if (integers.find(spec.type) != std::string_view::npos) {
      std::int64_t number = 0;
      if (value.is(Kind::kFloat) && (spec.type == 'd' || spec.type == 'i' || spec.type == 'u')) {
        if (!(std::fabs(value.as_float()) < 9.2e18)) {
          return python_error("OverflowError", "cannot convert float to a 64-bit integer");
        }
        number = static_cast<std::int64_t>(value.as_float());
      } else if (value.is_integral()) {
        number = value.as_int();
      } else {
        const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        if (decimal && value.is_undefined()) return undefined_error(value);
        return type_error("%" + std::string(1, spec.type) + " format: " +
                          (decimal ? "a real number is required, not "
                                   : "an integer is required, "
                                     "not ") +
                          std::string(type_name(value)));
      }
      ASSIGN_OR_RETURN(const std::string digits, format_integer(number, spec));
      out_.append(digits);
      return {};
    }
    if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
      return value_error("unsupported format character '" + std::string(1, spec.type) + "'");
    }
    if (value.is_undefined()) return undefined_error(value);
    if (!value.is_number()) {
      return type_error("must be real number, not " + std::string(type_name(value)));
    }
    out_.append(format_float(
        value.is(Kind::kFloat) ? value.as_float() : static_cast<double>(value.as_int()), spec));
    return {};
  }

  Interpreter& in_;
  std::string_view format_;
  Value argument_;
  std::span<const Value> items_;
  std::size_t used_ = 0;
  bool named_ = false;
  TextBuilder out_;
};

// --- "{}".

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  std::size_t after = 0;
  if (!text.empty()) next_code_point(text, &after);
  if (after < text.size() && is_align(text[after])) {
    spec.fill = text.substr(0, after);
    spec.align = text[after];
    i = after + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[i++];
  }
  const auto take = [&](std::string_view set) {
    return i < text.size() && set.find(text[i]) != std::string_view::npos ? text[i++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(text, &i, kMaxWidth);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    if (i >= text.size() || !is_digit(text[i])) {
      return value_error("Format specifier missing precision");
    }
    spec.precision = read_number(text, &i, kMaxPrecision);
    if (spec.precision < 0) return value_error("precision too big");
  }
  if (spec.width < 0) return value_error("width too big");
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) return value_error("Invalid format specifier");
  return spec;
}

Result<std::string> format_value(Interpreter& in, Value value, std::string_view text) {
  if (text.empty()) return std::string(to_text(in.heap(), value));
  if (!value.is_string() && !value.is_number()) {
    return type_error("unsupported format string passed to " + std::string(type_name(value)) +
                      ".__format__");
  }
  ASSIGN_OR_RETURN(Spec spec, parse_spec(text));
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') {
      return value_error("Unknown format code '" + std::string(1, spec.type) +
                         "' for object of type 'str'");
    }
    if (spec.align == '=' || spec.sign != '\0' || spec.grouping != '\0') {
      return value_error("format specifier is not allowed for a string");
    }
    return format_string(value.text(), spec);
  }
  const bool as_float =
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != '\0';
  if (value.is(Kind::kFloat) || as_float) {
    if (value.is(Kind::kFloat) && spec.type != '\0' && !as_float && spec.type != 'n') {
      return value_error("Unknown format code '" + std::string(1, spec.type) +
                         "' for object of type 'float'");
    }
    return format_float(
        value.is(Kind::kFloat) ? value.as_float() : static_cast<double>(value.as_int()), spec);
  }
  if (spec.precision >= 0) return value_error("Precision not allowed in integer format specifier");
  return format_integer(value.as_int(), spec);
}

class Braces {
 public:
  Braces(Interpreter& in, const CallArgs& args) : in_(in), args_(args) {}

  Result<std::string> run(std::string_view format, int depth) {
    if (depth > 2) return value_error("Max string recursion exceeded");
    std::string out;
    for (std::size_t i = 0; i < format.size();) {
      const char c = format[i];
      if (c != '{' && c != '}') {
        const std::size_t end = std::min(format.find_first_of("{}", i), format.size());
        out += format.substr(i, end - i);
        i = end;
      } else if (i + 1 < format.size() && format[i + 1] == c) {
        out.push_back(c);
        i += 2;
      } else if (c == '}') {
        return value_error("Single '}' encountered in format string");
      } else {
        RETURN_IF_ERROR(field(format, &i, depth, &out));
      }
      if (!in_.heap().can_afford(out.size())) {
        in_.heap().set_exceeded("the limit of memory for values");
      }
      RETURN_IF_ERROR(in_.check_budget());
    }
    return out;
  }

 private:
  Status field(std::string_view format, std::size_t* i, int depth, std::string* out) {
    const std::size_t begin = ++*i;
    for (int open = 1; *i < format.size() && open > 0; ++*i) {
      if (format[*i] == '{') ++open;
      if (format[*i] == '}' && --open == 0) break;
    }
    if (*i >= format.size()) return value_error("expected '}' before end of string");
    std::string_view body = format.substr(begin, *i - begin);
    ++*i;
    const std::size_t end = std::min(body.find_first_of("!:"), body.size());
    ASSIGN_OR_RETURN(Value value, lookup(body.substr(0, end)));
    body.remove_prefix(end);
    if (body.starts_with("!")) {
      if (body.size() < 2) {
        return value_error("end of string while looking for conversion specifier");
      }
      const char conversion = body[1];
      if (conversion == 'r' || conversion == 'a') {
        value = in_.heap().make_string(to_repr(in_.heap(), value));
      } else if (conversion == 's') {
        value = Value::string(to_text(in_.heap(), value));
      } else {
        return value_error("Unknown conversion specifier " + std::string(1, conversion));
      }
      body.remove_prefix(2);
    }
    std::string spec;
    if (body.starts_with(":")) {
      ASSIGN_OR_RETURN(spec, run(body.substr(1), depth + 1));
    }
    ASSIGN_OR_RETURN(const std::string text, format_value(in_, value, spec));
    *out += text;
    return {};
  }

  Result<Value> first(std::string_view name) {
    const bool numeric = std::all_of(name.begin(), name.end(), is_digit);
    if (!numeric) {
      for (const auto& [key, value] : args_.keyword) {
        if (key == name) return value;
      }
      return python_error("KeyError", quote(name));
    }
    if (name.empty() ? manual_ : automatic_ > 0) {
      return value_error(
          "cannot switch between manual field specification and automatic field "
          "numbering");
    }
    std::size_t index = automatic_;
    if (name.empty()) {
      ++automatic_;
    } else {
      manual_ = true;
      std::size_t at = 0;
      const int number = read_number(name, &at, 1'000'000);
      if (number < 0) return value_error("Too many decimal digits in format string");
      index = static_cast<std::size_t>(number);
    }
    if (index >= args_.positional.size()) {
      return python_error("IndexError", "Replacement index " + std::to_string(index) +
                                            " out of range for positional args tuple");
    }
    return args_.positional[index];
  }

  Result<Value> lookup(std::string_view path) {
    std::size_t i = std::min(path.find_first_of(".["), path.size());
    // The sandbox's formatter numbers only fields that are entirely empty.
    if (i == 0 && !path.empty()) return python_error("KeyError", "''");
    ASSIGN_OR_RETURN(Value value, first(path.substr(0, i)));
    while (i < path.size()) {
      if (path[i] == '.') {
        const std::size_t end = std::min(path.find_first_of(".[", i + 1), path.size());
        ASSIGN_OR_RETURN(value, in_.get_attribute(value, path.substr(i + 1, end - i - 1)));
        i = end;
      } else {
        const std::size_t close = path.find(']', i);
        if (path[i] != '[' || close == std::string_view::npos) {
          return value_error("Missing ']' in format string");
        }
        const std::string_view key = path.substr(i + 1, close - i - 1);
        const auto index = !key.empty() && std::all_of(key.begin(), key.end(), is_digit)
                               ? parse_integer(key, 10)
                               : std::nullopt;
        ASSIGN_OR_RETURN(value,
                         in_.get_item(value, index ? Value::integer(*index) : Value::string(key)));
        i = close + 1;
      }
    }
    return value;
  }

  Interpreter& in_;
  const CallArgs& args_;
  std::size_t automatic_ = 0;  // fields numbered so far
  bool manual_ = false;
};

}  // namespace

Result<Value> format_percent(Interpreter& interpreter, Value format, Value argument) {
  interpreter.heap().scan(format.text().size());
  return Percent(interpreter, format.text(), argument).run();
}

Result<Value> format_braces(Interpreter& interpreter, Value format, const CallArgs& args) {
  interpreter.heap().scan(format.text().size());
  ASSIGN_OR_RETURN(const std::string text, Braces(interpreter, args).run(format.text(), 1));
  return interpreter.heap().make_string(text);
}

}  // namespace sluice::jinja
