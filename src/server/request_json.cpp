#include "server/request_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/json_depth.h"
#include "base/utf8.h"
#include "server/fast_json.h"
#include "server/json_writer.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

// The callbacks of the parser that explains errors. Returning false ends the parse.
class TreeBuilder {
 public:
  bool null() { return add(JsonValue{nullptr}); }
  bool boolean(bool value) { return add(JsonValue{value}); }
  bool number_integer(Json::number_integer_t value) { return add(JsonValue{std::int64_t{value}}); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (std::in_range<std::int64_t>(value)) {
      return add(JsonValue{static_cast<std::int64_t>(value)});
    }
    return add(JsonValue{JsonDecimal{std::to_string(value)}});
  }
  bool number_float(Json::number_float_t, const std::string& text) {
    return add(JsonValue{JsonDecimal{text}});
  }
  bool string(std::string& value) { return add(JsonValue{std::move(value)}); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(JsonValue{JsonValue::Object{}}); }
  bool start_array(std::size_t) { return open(JsonValue{JsonValue::Array{}}); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    std::get<JsonValue::Object>(stack_.back()->data).push_back({std::move(name), {}});
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    offset_ = position == 0 ? 0 : position - 1;
    reason_ = error.what();
    return false;
  }

  JsonValue& root() { return root_; }
  std::size_t offset() const { return offset_; }
  const std::string& reason() const { return reason_; }

 private:
  JsonValue* place(JsonValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* array = std::get_if<JsonValue::Array>(&stack_.back()->data)) {
      return &array->emplace_back(std::move(value));
    }
    auto& member = std::get<JsonValue::Object>(stack_.back()->data).back();
    member.value = std::move(value);
    return &member.value;
  }
  bool add(JsonValue value) {
    place(std::move(value));
    return true;
  }
  bool open(JsonValue value) {
    // A container does not move while it is open: its parent grows only after it is closed.
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  JsonValue root_;
  std::vector<JsonValue*> stack_;
  std::size_t offset_ = 0;
  std::string reason_;
};

tl::unexpected<ApiError> bad_body(std::string message) {
  return tl::unexpected(bad_field("", std::move(message)));
}

// Counts an upper bound of the values: every value but the first follows a comma, a bracket or a
// colon.
bool more_values_than(std::string_view text, std::size_t limit) {
  std::size_t count = 1;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == ',' || c == '[' || c == '{') {
      if (++count > limit) return true;
    }
  }
  return false;
}

// The parser's message without its tag, its line and column, which count differently, and its last
// token, which may be long and end in half a character.
std::string parser_reason(std::string_view what) {
  if (const auto tag = what.find("] "); tag != std::string_view::npos) what.remove_prefix(tag + 2);
  if (what.starts_with("parse error at line")) {
    if (const auto at = what.find(": "); at != std::string_view::npos) what.remove_prefix(at + 2);
  }
  std::string reason(what.substr(0, what.find("; last read: ")));
  if (const auto expected = what.rfind("; expected "); expected != std::string_view::npos) {
    if (expected >= reason.size()) reason += what.substr(expected);
  }
  constexpr std::size_t kLongest = 200;
  reason.resize(std::min(reason.size(), kLongest));
  if (const auto invalid = utf8::find_invalid(reason)) reason.resize(*invalid);
  return reason;
}

std::string shown_text(std::string_view text) {
  constexpr std::size_t kLongest = 48;
  std::string out;
  if (text.size() <= kLongest) {
    append_json_string(text, out);
    return out;
  }
  append_json_string(text.substr(0, utf8::previous(text, kLongest + 1)), out);
  return fmt::format("{}... ({} bytes)", out, text.size());
}

}  // namespace

ApiResult<JsonValue> read_json_or_explain(std::string_view body, std::string_view subject) {
  TreeBuilder builder;
  if (!Json::sax_parse(body, &builder)) {
    return bad_body(fmt::format("{} is not valid JSON at byte offset {}: {}", subject,
                                builder.offset(), parser_reason(builder.reason())));
  }
  return std::move(builder.root());
}

ApiResult<JsonValue> parse_bounded_json(std::string_view body, std::string_view subject) {
  if (json_deeper_than(body, kMaxBodyDepth)) {
    return bad_body(fmt::format("{} is nested deeper than {} levels", subject, kMaxBodyDepth));
  }
  if (more_values_than(body, kMaxBodyValues)) {
    return bad_body(fmt::format("{} holds more than {} values", subject, kMaxBodyValues));
  }
  if (std::optional<JsonValue> root = read_json_fast(body)) return *std::move(root);
  return read_json_or_explain(body, subject);
}

ApiResult<JsonValue::Object> parse_request_json(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return bad_body("the body is empty; expected a JSON object");
  }
  if (const auto invalid = utf8::find_invalid(body)) {
    return bad_body(fmt::format("the body is not valid UTF-8 at byte offset {}", *invalid));
  }
  auto root = parse_bounded_json(body);
  if (!root) return tl::unexpected(std::move(root).error());
  auto* object = std::get_if<JsonValue::Object>(&root->data);
  if (object == nullptr) {
    return bad_body(fmt::format("the body is {}; expected a JSON object", shown_value(*root)));
  }
  if (object->size() > kMaxBodyFields) {
    return bad_body(
        fmt::format("the body has {} fields; at most {} are read", object->size(), kMaxBodyFields));
  }
  return std::move(*object);
}

void append_json(const JsonValue& value, std::string& out) {
  if (const bool* flag = value.boolean()) {
    out += *flag ? "true" : "false";
  } else if (const auto* integer = value.integer()) {
    append_json_integer(*integer, out);
  } else if (const auto* decimal = value.decimal()) {
    out += decimal->text;
  } else if (const auto* text = value.string()) {
    append_json_string(*text, out);
  } else if (const auto* array = value.array()) {
    append_json_list(*array, out, [&](const JsonValue& item) { append_json(item, out); });
  } else if (const auto* object = value.object()) {
    out += '{';
    for (const JsonMember& member : *object) {
      if (&member != object->data()) out += ',';
      append_json_string(member.name, out);
      out += ':';
      append_json(member.value, out);
    }
    out += '}';
  } else {
    out += "null";
  }
}

std::string shown_value(const JsonValue& value) {
  // Only scalars are shown: a container may be large.
  if (value.object() != nullptr) return "an object";
  if (value.array() != nullptr) return "an array";
  if (const auto* text = value.string()) return shown_text(*text);
  if (const auto* decimal = value.decimal()) {
    constexpr std::size_t kLongest = 32;
    if (decimal->text.size() > kLongest) return decimal->text.substr(0, kLongest) + "...";
  }
  std::string out;
  append_json(value, out);
  return out;
}

}  // namespace sluice
