#include "chat_template/text_ops.h"

#include <algorithm>
#include <string>

#include "chat_template/interpreter.h"
#include "chat_template/ops.h"

namespace sluice::jinja {

Error not_an_integer(Value value) {
  return type_error("'" + std::string(type_name(value)) +
                    "' object cannot be interpreted as an integer");
}

Result<Value> strip_value(Interpreter& interpreter, Value text, Value chars, Side side) {
  interpreter.heap().scan(text.text().size());
  if (chars.is_missing() || chars.is_none()) {
    return Value::string(strip_space(text.text(), side), text.flavor());
  }
  if (!chars.is_string()) return type_error("strip arg must be None or str");
  interpreter.heap().scan(chars.text().size() * 8);
  return Value::string(strip_chars(text.text(), chars.text(), side), text.flavor());
}

Result<Value> replace_text(Interpreter& interpreter, std::string_view text, std::string_view from,
                           std::string_view to, std::int64_t count) {
  Heap& heap = interpreter.heap();
  heap.scan(text.size());
  TextBuilder out(heap);
  std::size_t done = 0;
  if (from.empty()) {
    // Python puts `to` before every character and at the end.
    while (count != 0 && heap.exceeded().empty()) {
      out.append(to);
      --count;
      if (done >= text.size()) break;
      const std::size_t begin = done;
      next_code_point(text, &done);
      out.append(text.substr(begin, done - begin));
    }
  } else {
    while (count-- != 0 && heap.exceeded().empty()) {
      const std::size_t found = text.find(from, done);
      if (found == std::string_view::npos) break;
      out.append(text.substr(done, found - done));
      out.append(to);
      done = found + from.size();
    }
  }
  out.append(text.substr(done));
  return out.finish();
}

Result<Value> pad_text(Interpreter& interpreter, Value text, Value width, Value fill, Side side) {
  if (!width.is_integral()) return not_an_integer(width);
  std::string_view padding = " ";
  if (fill.is_string()) padding = fill.text();
  if ((!fill.is_missing() && !fill.is_string()) || utf8::count_code_points(padding) != 1) {
    return type_error("The fill character must be exactly one character long");
  }
  Heap& heap = interpreter.heap();
  const std::int64_t missing = width.as_int() - length_of(heap, text);
  if (missing <= 0) return text;
  if (!heap.can_afford(static_cast<std::size_t>(missing))) {
    heap.set_exceeded("the limit of memory for values");
    return text;
  }
  // If both sides get padding, CPython puts the odd character on the left when the width is odd.
  std::int64_t left = side == Side::kLeft ? missing : 0;
  if (side == Side::kBoth) left = missing / 2 + (missing & width.as_int() & 1);
  TextBuilder out(heap);
  for (std::int64_t i = 0; i < left; ++i) out.append(padding);
  out.append(text.text());
  for (std::int64_t i = left; i < missing; ++i) out.append(padding);
  return out.finish(text.flavor());
}

Result<Value> attribute_path(Interpreter& interpreter, Value item, Value path, Value otherwise) {
  const auto step = [&](Value key) -> Status {
    ASSIGN_OR_RETURN(item, interpreter.get_item(item, key));
    if (item.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) item = otherwise;
    return {};
  };
  if (path.is_missing() || path.is_none()) return item;
  if (!path.is_string()) {
    RETURN_IF_ERROR(step(path));
    return item;
  }
  std::string_view rest = path.text();
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    const auto index = number ? parse_integer(part, 10) : std::nullopt;
    RETURN_IF_ERROR(step(index ? Value::integer(*index) : Value::string(part)));
    if (dot == rest.size()) return item;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace sluice::jinja
