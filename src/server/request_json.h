// The JSON of a request's body as a tree that keeps what templates need: the order of keys and
// numbers as they were written. If a key appears twice, the last value is used, as in Python. Built
// in linear time for every body; depth and number of values are checked before anything is built.
// Values: plain; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api_error.h"

namespace sluice {

// Levels of brackets in a body.
inline constexpr int kMaxBodyDepth = 128;
// Values in a body, nested ones included: far above the longest prompt of token ids.
inline constexpr std::size_t kMaxBodyValues = 2'000'000;
// Fields of the body itself; the reader searches all of them for each known field.
inline constexpr std::size_t kMaxBodyFields = 1024;

// A number with a fraction, an exponent or more digits than 64 bits hold, as written. Its value as
// a double is finite: others are no valid body.
struct JsonDecimal {
  std::string text;
  double value() const;
};

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;
  std::variant<std::nullptr_t, bool, std::int64_t, JsonDecimal, std::string, Array, Object> data;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(data); }
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data); }
  const JsonDecimal* decimal() const { return std::get_if<JsonDecimal>(&data); }
  const std::string* string() const { return std::get_if<std::string>(&data); }
  const Array* array() const { return std::get_if<Array>(&data); }
  const Object* object() const { return std::get_if<Object>(&data); }
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// The last member of that name; nullptr when there is none.
const JsonValue* find_member(const JsonValue::Object& object, std::string_view name);

// Errors: 400 that says where (byte offset) and what: empty, not UTF-8, not JSON, anything behind
// the value, not an object, too deep, too many values or fields.
ApiResult<JsonValue::Object> parse_request_json(std::string_view body);

// The slower of its two parsers, which it asks about what the fast one (fast_json.h) refuses.
// Errors: 400 for what is not JSON, with the place and the reason.
ApiResult<JsonValue> read_json_or_explain(std::string_view body);

// The text of a value again, without spaces between its parts.
void append_json(const JsonValue& value, std::string& out);

// A value as error messages show it: short, and always valid UTF-8.
std::string shown_value(const JsonValue& value);

}  // namespace sluice
