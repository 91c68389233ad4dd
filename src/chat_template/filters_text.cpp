// Filters that make or change text.
#include <algorithm>
#include <string>

#include "chat_template/builtins.h"
#include "chat_template/format.h"
#include "chat_template/interpreter.h"
#include "chat_template/json_text.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

// soft_str: a string as it is, anything else through str().
Value soft_text(Interpreter& in, Value value) {
  if (value.is_string()) return value;
  return Value::string(to_text(in.heap(), value));
}

// A filter that is one function from text to text.
template <auto function>
Result<Value> text_filter(Interpreter& in, Args args) {
  const Value text = soft_text(in, args[0]);
  in.heap().scan(text.text().size() * 4);
  return in.heap().make_string(function(text.text()), text.flavor());
}

// jinja2's title: a word begins only after blanks, hyphens and opening brackets.
std::string title_filter(std::string_view text) {
  std::string out;
  const auto separates = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size();) {
    std::size_t next = i;
    const bool at_end = i == text.size();
    const char32_t c = at_end ? U' ' : next_code_point(text, &next);
    if (at_end || separates(c)) {
      const std::string_view word = text.substr(begin, i - begin);
      if (!word.empty()) {
        const std::size_t first = byte_offset(word, 1);
        out += to_upper(word.substr(0, first));
        out += to_lower(word.substr(first));
      }
      if (at_end) break;
      out += text.substr(i, next - i);
      begin = next;
    }
    i = next;
  }
  return out;
}

Result<Value> trim(Interpreter& in, Args args) {
  const Value text = soft_text(in, args[0]);
  return strip_value(in, text, args[1], Side::kBoth);
}

Result<Value> string(Interpreter& in, Args args) { return soft_text(in, args[0]); }

Result<Value> safe(Interpreter& in, Args args) {
  return Value::string(to_text(in.heap(), args[0]), StringFlavor::kMarkup);
}

Result<Value> escape(Interpreter& in, Args args) {
  if (args[0].is_markup()) return args[0];
  const std::string_view text = to_text(in.heap(), args[0]);
  in.heap().scan(text.size());
  return in.heap().make_string(escape_html(text), StringFlavor::kMarkup);
}

Result<Value> force_escape(Interpreter& in, Args args) {
  const std::string_view text = to_text(in.heap(), args[0]);
  in.heap().scan(text.size());
  return in.heap().make_string(escape_html(text), StringFlavor::kMarkup);
}

Result<Value> replace(Interpreter& in, Args args) {
  const std::string_view text = to_text(in.heap(), args[0]);
  std::int64_t count = -1;
  if (!args[3].is_missing() && !args[3].is_none()) {
    if (!args[3].is_integral()) return not_an_integer(args[3]);
    count = args[3].as_int();
  }
  return replace_text(in, text, to_text(in.heap(), args[1]), to_text(in.heap(), args[2]), count);
}

Result<Value> join(Interpreter& in, Args args) {
  const std::string_view separator =
      args[1].is_missing() ? std::string_view() : to_text(in.heap(), args[1]);
  ASSIGN_OR_RETURN(Iterator * source, in.iterate(args[0]));
  TextBuilder out(in.heap());
  Value item;
  for (bool first = true;; first = false) {
    ASSIGN_OR_RETURN(const bool more, source->next(in, &item));
    if (!more) break;
    RETURN_IF_ERROR(in.check_budget());
    if (!args[2].is_missing() && !args[2].is_none()) {
      ASSIGN_OR_RETURN(item, attribute_path(in, item, args[2], Value()));
    }
    if (!first) out.append(separator);
    append_text(in.heap(), out, item);
  }
  return out.finish();
}

Result<Value> indent(Interpreter& in, Args args) {
  if (args[0].is_undefined()) return undefined_error(args[0]);
  if (args[0].is(Kind::kList)) {
    return python_error("AttributeError", "'list' object has no attribute 'splitlines'");
  }
  if (!args[0].is_string()) {
    return type_error("unsupported operand type(s) for +=: '" + std::string(type_name(args[0])) +
                      "' and 'str'");
  }
  std::string indention(4, ' ');
  if (args[1].is_string()) {
    indention = args[1].text();
  } else if (args[1].is_integral()) {
    const std::int64_t width = std::max<std::int64_t>(args[1].as_int(), 0);
    if (!in.heap().can_afford(static_cast<std::size_t>(width))) {
      in.heap().set_exceeded("the limit of memory for values");
      RETURN_IF_ERROR(in.check_budget());
    }
    indention.assign(static_cast<std::size_t>(width), ' ');
  } else if (!args[1].is_missing()) {
    return type_error("can't multiply sequence by non-int of type '" +
                      std::string(type_name(args[1])) + "'");
  }
  const std::string_view text = args[0].text();
  in.heap().scan(text.size());
  const std::string with_newline = std::string(text) + "\n";
  const auto lines = split_lines(with_newline, false);
  const bool blank = is_truthy(args[3]);
  TextBuilder out(in.heap());
  if (is_truthy(args[2])) out.append(indention);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.append("\n");
      if (blank || !lines[i].empty()) out.append(indention);
    }
    out.append(lines[i]);
  }
  return out.finish(args[0].flavor());
}

Result<Value> to_json(Interpreter& in, Args args) {
  JsonStyle style;
  std::string indent_text;
  style.ascii_only = is_truthy(args[1]);
  style.sort_keys = is_truthy(args[4]);
  if (!args[2].is_missing() && !args[2].is_none()) {
    style.has_indent = true;
    style.item_separator = ",";
    if (args[2].is_string()) {
      indent_text = args[2].text();
    } else if (args[2].is_integral()) {
      const std::int64_t width = args[2].as_int();
      if (width > 1000) return python_error("ValueError", "tojson: indent must be at most 1000");
      if (width > 0) indent_text.assign(static_cast<std::size_t>(width), ' ');
    } else {
      return type_error("can't multiply sequence by non-int of type '" +
                        std::string(type_name(args[2])) + "'");
    }
  }
  style.indent = indent_text;
  if (!args[3].is_missing() && !args[3].is_none()) {
    std::vector<Value> storage;
    ASSIGN_OR_RETURN(const auto pair, in.collect(args[3], &storage));
    if (pair.size() != 2) {
      return python_error("ValueError", "tojson: separators must be a pair of strings");
    }
    if (!pair[0].is_string() || !pair[1].is_string()) {
      return type_error("tojson: separators must be strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return dump_json(in.heap(), args[0], style);
}

Result<Value> format(Interpreter& in, Args args) {
  const CallArgs& raw = args.raw;
  if (raw.positional.size() > 1 && !raw.keyword.empty()) {
    return python_error("FilterArgumentError",
                        "can't handle positional and keyword arguments at the same time");
  }
  const Value text = soft_text(in, raw.positional[0]);
  if (raw.keyword.empty()) {
    return format_percent(in, text, in.heap().make_tuple(raw.positional.subspan(1)));
  }
  std::vector<DictEntry> entries;
  for (const auto& [key, value] : raw.keyword) entries.push_back({Value::string(key), value});
  return format_percent(in, text, in.heap().make_dict(entries));
}

Result<Value> center(Interpreter& in, Args args) {
  return pad_text(in, soft_text(in, args[0]), args[1].is_missing() ? Value::integer(80) : args[1],
                  Value(), Side::kBoth);
}

Result<Value> truncate(Interpreter& in, Args args) {
  const auto number = [&](std::size_t i, std::int64_t otherwise) {
    return args[i].is_integral() ? args[i].as_int() : otherwise;
  };
  const std::string_view end = args[3].is_string() ? args[3].text() : "...";
  const std::int64_t length = number(1, 255);
  const std::int64_t leeway = number(4, 5);
  const auto end_length = utf8::count_code_points(end);
  if (length < end_length) {
    return python_error("AssertionError", "expected length >= " + std::to_string(end_length) +
                                              ", got " + std::to_string(length));
  }
  if (leeway < 0) {
    return python_error("AssertionError", "expected leeway >= 0, got " + std::to_string(leeway));
  }
  const std::int64_t size = length_of(in.heap(), args[0]);
  if (size < 0) {
    return type_error("object of type '" + std::string(type_name(args[0])) + "' has no len()");
  }
  if (size <= length + leeway) return args[0];
  if (!args[0].is_string()) return type_error("truncate needs a string");
  const std::string_view text = args[0].text();
  std::string_view kept =
      text.substr(0, byte_offset(text, static_cast<std::size_t>(length - end_length)));
  if (!is_truthy(args[2])) kept = kept.substr(0, kept.rfind(' '));
  TextBuilder out(in.heap());
  out.append(kept);
  out.append(end);
  return out.finish(args[0].flavor());
}

Result<Value> word_count(Interpreter& in, Args args) {
  const std::string_view text = soft_text(in, args[0]).text();
  in.heap().scan(text.size());
  std::int64_t count = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, &i);
    const bool word = c == '_' || is_alpha(c) || is_numeric(c);
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::integer(count);
}

Result<Value> strip_tags(Interpreter& in, Args args) {
  const std::string_view text = to_text(in.heap(), args[0]);
  in.heap().scan(text.size());
  std::string plain;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t open = text.find('<', i);
    const std::size_t close = open == std::string_view::npos ? open : text.find('>', open);
    if (close == std::string_view::npos) {
      plain += text.substr(i);
      break;
    }
    plain += text.substr(i, open - i);
    i = close + 1;
  }
  std::string out;
  for (const std::string_view word : split_space(plain, -1, Side::kLeft)) {
    if (!out.empty()) out.push_back(' ');
    out += word;
  }
  return in.heap().make_string(out);
}

Result<Value> url_encode(Interpreter& in, Args args) {
  if (!args[0].is_string() && !args[0].is_number()) {
    return python_error("TypeError", "urlencode is supported for strings and numbers only");
  }
  const std::string_view text = to_text(in.heap(), args[0]);
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '-' || c == '~' || c == '/') {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return in.heap().make_string(out);
}

constexpr Builtin kFilters[] = {
    {"capitalize", "s", text_filter<capitalize>},
    {"center", "value width?", center},
    {"e", "s", escape},
    {"escape", "s", escape},
    {"forceescape", "value", force_escape},
    {"format", "*", format},
    {"indent", "s width? first? blank?", indent},
    {"join", "value d? attribute?", join},
    {"lower", "s", text_filter<to_lower>},
    {"replace", "s old new count?", replace},
    {"safe", "value", safe},
    {"string", "object", string},
    {"striptags", "value", strip_tags},
    {"title", "s", text_filter<title_filter>},
    {"tojson", "x ensure_ascii? indent? separators? sort_keys?", to_json},
    {"trim", "value chars?", trim},
    {"truncate", "s length? killwords? end? leeway?", truncate},
    {"upper", "s", text_filter<to_upper>},
    {"urlencode", "value", url_encode},
    {"wordcount", "s", word_count},
};

}  // namespace

std::span<const Builtin> text_filters() { return kFilters; }

}  // namespace sluice::jinja
