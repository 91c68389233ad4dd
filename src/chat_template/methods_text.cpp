// The methods of strings.
#include <algorithm>
#include <string>

#include "chat_template/format.h"
#include "chat_template/interpreter.h"
#include "chat_template/methods.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

template <auto function>
Result<Value> mapped(Interpreter& in, Args args) {
  in.heap().scan(args[0].text().size() * 4);
  return in.heap().make_string(function(args[0].text()), args[0].flavor());
}

template <Side side>
Result<Value> strip(Interpreter& in, Args args) {
  return strip_value(in, args[0], args[1], side);
}

template <Side side>
Result<Value> pad(Interpreter& in, Args args) {
  return pad_text(in, args[0], args[1], args[2], side);
}

Result<Value> list_of_text(Interpreter& in, const std::vector<std::string_view>& parts,
                           StringFlavor flavor) {
  if (!in.heap().can_afford(parts.size() * sizeof(Value))) {
    in.heap().set_exceeded("the limit of memory for values");
    return Value::list({});
  }
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::string(part, flavor));
  return in.heap().make_list(items);
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t max_splits, Side from) {
  std::vector<std::string_view> parts;
  const auto full = [&] {
    return max_splits >= 0 && static_cast<std::int64_t>(parts.size()) >= max_splits;
  };
  if (from == Side::kLeft) {
    while (!full()) {
      const std::size_t found = text.find(separator);
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(0, found));
      text.remove_prefix(found + separator.size());
    }
    parts.push_back(text);
    return parts;
  }
  while (!full()) {
    const std::size_t found = text.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <Side from>
Result<Value> split(Interpreter& in, Args args) {
  std::int64_t max_splits = -1;
  if (!args[2].is_missing()) {
    if (!args[2].is_integral()) return not_an_integer(args[2]);
    max_splits = args[2].as_int();
  }
  const std::string_view text = args[0].text();
  in.heap().scan(text.size());
  // The number of parts is not known yet; text of n bytes has at most n + 1.
  if (!in.heap().can_afford(text.size())) {
    in.heap().set_exceeded("the limit of memory for values");
    return Value::list({});
  }
  if (args[1].is_missing() || args[1].is_none()) {
    return list_of_text(in, split_space(text, max_splits, from), args[0].flavor());
  }
  if (!args[1].is_string()) {
    return type_error("must be str or None, not " + std::string(type_name(args[1])));
  }
  if (args[1].text().empty()) return python_error("ValueError", "empty separator");
  return list_of_text(in, split_at(text, args[1].text(), max_splits, from), args[0].flavor());
}

Result<Value> splitlines(Interpreter& in, Args args) {
  in.heap().scan(args[0].text().size());
  return list_of_text(in, split_lines(args[0].text(), is_truthy(args[1])), args[0].flavor());
}

template <Side from>
Result<Value> partition(Interpreter& in, Args args) {
  if (!args[1].is_string()) {
    return type_error("must be str, not " + std::string(type_name(args[1])));
  }
  const std::string_view separator = args[1].text();
  if (separator.empty()) return python_error("ValueError", "empty separator");
  const std::string_view text = args[0].text();
  in.heap().scan(text.size());
  const std::size_t found = from == Side::kLeft ? text.find(separator) : text.rfind(separator);
  const StringFlavor flavor = args[0].flavor();
  Value parts[3] = {args[0], Value::string("", flavor), Value::string("", flavor)};
  if (found != std::string_view::npos) {
    parts[0] = Value::string(text.substr(0, found), flavor);
    parts[1] = Value::string(separator, flavor);
    parts[2] = Value::string(text.substr(found + separator.size()), flavor);
  } else if (from == Side::kRight) {
    std::swap(parts[0], parts[2]);
  }
  return in.heap().make_tuple(parts);
}

// The part text[start:end] for methods that take these bounds.
Result<Value> bounded(Interpreter& in, Args args) {
  return slice(in.heap(), args[0], args[2], args[3], Value());
}

enum class Edge : std::uint8_t { kStart, kEnd };
template <Edge edge>
Result<Value> affix(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const Value part, bounded(in, args));
  std::span<const Value> candidates(&args.bound[1], 1);
  if (args[1].is(Kind::kTuple)) candidates = args[1].items();
  for (const Value candidate : candidates) {
    if (!candidate.is_string()) {
      return type_error(std::string(edge == Edge::kStart ? "startswith" : "endswith") +
                        " first arg must be str or a tuple of str, not " +
                        std::string(type_name(candidate)));
    }
    in.heap().scan(candidate.text().size());
    const bool found = edge == Edge::kStart ? part.text().starts_with(candidate.text())
                                            : part.text().ends_with(candidate.text());
    if (found) return Value::boolean(true);
  }
  return Value::boolean(false);
}

// The position of args[1] within the bounds, in code points; -1 when it is absent.
Result<std::int64_t> position(Interpreter& in, Args args, Side from) {
  if (!args[1].is_string()) {
    return type_error("must be str, not " + std::string(type_name(args[1])));
  }
  ASSIGN_OR_RETURN(const Value part, bounded(in, args));
  in.heap().scan(args[0].text().size());
  const std::size_t found =
      from == Side::kLeft ? part.text().find(args[1].text()) : part.text().rfind(args[1].text());
  if (found == std::string_view::npos) return -1;
  // An empty slice has no position, so its start is computed as Python does.
  std::int64_t start = 0;
  if (args[2].is_integral()) {
    const std::int64_t length = length_of(in.heap(), args[0]);
    start = args[2].as_int() < 0 ? std::max<std::int64_t>(0, args[2].as_int() + length)
                                 : args[2].as_int();
    if (start > length) return -1;
  }
  return start + utf8::count_code_points(part.text().substr(0, found));
}

template <Side from>
Result<Value> find_text(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const std::int64_t at, position(in, args, from));
  return Value::integer(at);
}

template <Side from>
Result<Value> index(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const std::int64_t at, position(in, args, from));
  if (at < 0) return python_error("ValueError", "substring not found");
  return Value::integer(at);
}

Result<Value> count(Interpreter& in, Args args) {
  if (!args[1].is_string()) {
    return type_error("must be str, not " + std::string(type_name(args[1])));
  }
  ASSIGN_OR_RETURN(const Value part, bounded(in, args));
  const std::string_view text = part.text();
  in.heap().scan(text.size());
  if (args[1].text().empty()) return Value::integer(length_of(in.heap(), part) + 1);
  std::int64_t found = 0;
  for (std::size_t at = text.find(args[1].text()); at != std::string_view::npos;
       at = text.find(args[1].text(), at + args[1].text().size())) {
    ++found;
  }
  return Value::integer(found);
}

Result<Value> replace(Interpreter& in, Args args) {
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    if (!args[i].is_string()) {
      return type_error("replace() argument " + std::to_string(i) + " must be str, not " +
                        std::string(type_name(args[i])));
    }
  }
  std::int64_t limit = -1;
  if (!args[3].is_missing()) {
    if (!args[3].is_integral()) return not_an_integer(args[3]);
    limit = args[3].as_int();
  }
  return replace_text(in, args[0].text(), args[1].text(), args[2].text(), limit);
}

Result<Value> join(Interpreter& in, Args args) {
  Result<Iterator*> source = in.iterate(args[1]);
  if (!source) return type_error("can only join an iterable");
  TextBuilder out(in.heap());
  Value item;
  for (std::int64_t i = 0;; ++i) {
    ASSIGN_OR_RETURN(const bool more, (*source)->next(in, &item));
    if (!more) break;
    RETURN_IF_ERROR(in.check_budget());
    if (!item.is_string()) {
      return type_error("sequence item " + std::to_string(i) + ": expected str instance, " +
                        std::string(type_name(item)) + " found");
    }
    if (i > 0) out.append(args[0].text());
    out.append(item.text());
  }
  return out.finish(args[0].flavor());
}

template <Edge edge>
Result<Value> remove_affix(Interpreter&, Args args) {
  if (!args[1].is_string()) {
    return type_error("argument must be str, not " + std::string(type_name(args[1])));
  }
  std::string_view text = args[0].text();
  const std::string_view affix_text = args[1].text();
  if (edge == Edge::kStart && text.starts_with(affix_text)) text.remove_prefix(affix_text.size());
  if (edge == Edge::kEnd && text.ends_with(affix_text)) text.remove_suffix(affix_text.size());
  return Value::string(text, args[0].flavor());
}

Result<Value> zero_fill(Interpreter& in, Args args) {
  const std::string_view text = args[0].text();
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const Value body = Value::string(text.substr(sign ? 1 : 0));
  if (!args[1].is_integral()) return not_an_integer(args[1]);
  if (args[1].as_int() <= 0) return args[0];
  const Value width = Value::integer(args[1].as_int() - (sign ? 1 : 0));
  ASSIGN_OR_RETURN(const Value padded, pad_text(in, body, width, Value::string("0"), Side::kLeft));
  TextBuilder out(in.heap());
  out.append(text.substr(0, sign ? 1 : 0));
  out.append(padded.text());
  return out.finish();
}

bool is_digit_class(char32_t c) {
  // Superscripts and circled digits are digits without being decimals.
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
         (c >= 0x2070 && c <= 0x2089 && c != 0x2071 && c != 0x2072 && c != 0x2073 &&
          !(c >= 0x207A && c <= 0x207F)) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_space_class(char32_t c) { return is_space(c); }

template <bool (*predicate)(char32_t)>
Result<Value> all_are(Interpreter& in, Args args) {
  const std::string_view text = args[0].text();
  in.heap().scan(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (!predicate(next_code_point(text, &i))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Result<Value> cased(Interpreter& in, Args args) {
  in.heap().scan(args[0].text().size());
  bool any = false;
  for (std::size_t i = 0; i < args[0].text().size();) {
    const char32_t c = next_code_point(args[0].text(), &i);
    if (other(c)) return Value::boolean(false);
    any = any || wanted(c);
  }
  return Value::boolean(any);
}

Result<Value> is_title(Interpreter& in, Args args) {
  in.heap().scan(args[0].text().size());
  bool any = false;
  bool inside = false;
  for (std::size_t i = 0; i < args[0].text().size();) {
    const char32_t c = next_code_point(args[0].text(), &i);
    if ((is_upper(c) && inside) || (is_lower(c) && !inside)) return Value::boolean(false);
    inside = is_cased(c);
    any = any || inside;
  }
  return Value::boolean(any);
}

Result<Value> ascii(Interpreter& in, Args args) {
  in.heap().scan(args[0].text().size());
  return Value::boolean(is_ascii(args[0].text()));
}

Result<Value> printable(Interpreter& in, Args args) {
  if (args[0].text().empty()) return Value::boolean(true);
  return all_are<is_printable>(in, args);
}

Result<Value> identifier(Interpreter&, Args args) {
  const std::string_view text = args[0].text();
  for (std::size_t i = 0; i < text.size();) {
    const bool first = i == 0;
    const char32_t c = next_code_point(text, &i);
    if (c != '_' && !is_alpha(c) && (first || !is_decimal(c))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Result<Value> format(Interpreter& in, Args args) {
  return format_braces(in, args.raw.positional[0],
                       {args.raw.positional.subspan(1), args.raw.keyword});
}

constexpr Builtin kMethods[] = {
    {"capitalize", "self /", mapped<capitalize>},
    {"casefold", "self /", mapped<to_casefold>},
    {"center", "self width fillchar? /", pad<Side::kBoth>},
    {"count", "self sub start? end? /", count},
    {"endswith", "self suffix start? end? /", affix<Edge::kEnd>},
    {"find", "self sub start? end? /", find_text<Side::kLeft>},
    {"format", "*", format},
    {"index", "self sub start? end? /", index<Side::kLeft>},
    {"isalnum", "self /", all_are<is_alnum>},
    {"isalpha", "self /", all_are<is_alpha>},
    {"isascii", "self /", ascii},
    {"isdecimal", "self /", all_are<is_decimal>},
    {"isdigit", "self /", all_are<is_digit_class>},
    {"isidentifier", "self /", identifier},
    {"islower", "self /", cased<is_lower, is_upper>},
    {"isnumeric", "self /", all_are<is_numeric>},
    {"isprintable", "self /", printable},
    {"isspace", "self /", all_are<is_space_class>},
    {"istitle", "self /", is_title},
    {"isupper", "self /", cased<is_upper, is_lower>},
    {"join", "self iterable /", join},
    {"ljust", "self width fillchar? /", pad<Side::kRight>},
    {"lower", "self /", mapped<to_lower>},
    {"lstrip", "self chars? /", strip<Side::kLeft>},
    {"partition", "self sep /", partition<Side::kLeft>},
    {"removeprefix", "self prefix /", remove_affix<Edge::kStart>},
    {"removesuffix", "self suffix /", remove_affix<Edge::kEnd>},
    {"replace", "self old new count? /", replace},
    {"rfind", "self sub start? end? /", find_text<Side::kRight>},
    {"rindex", "self sub start? end? /", index<Side::kRight>},
    {"rjust", "self width fillchar? /", pad<Side::kLeft>},
    {"rpartition", "self sep /", partition<Side::kRight>},
    {"rsplit", "self sep? maxsplit?", split<Side::kRight>},
    {"rstrip", "self chars? /", strip<Side::kRight>},
    {"split", "self sep? maxsplit?", split<Side::kLeft>},
    {"splitlines", "self keepends?", splitlines},
    {"startswith", "self prefix start? end? /", affix<Edge::kStart>},
    {"strip", "self chars? /", strip<Side::kBoth>},
    {"swapcase", "self /", mapped<swap_case>},
    {"title", "self /", mapped<title_case>},
    {"upper", "self /", mapped<to_upper>},
    {"zfill", "self width /", zero_fill},
};

}  // namespace

std::span<const Builtin> text_methods() { return kMethods; }

}  // namespace sluice::jinja
