// JsonValue: parsed JSON as a tree. It keeps the order of keys, repeated keys and the digits of
// numbers that 64 bits do not hold, because chat templates see all three.
// Values: plain, they own their parts; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice {

// A number with a fraction, an exponent or more digits than 64 bits hold, as written. Its value as
// a double is finite.
struct JsonDecimal {
  std::string text;
  double value() const;
  // Whether it is a whole number written without fraction and exponent.
  bool is_big_integer() const { return text.find_first_of(".eE") == std::string::npos; }
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
  Array* array() { return std::get_if<Array>(&data); }
  const Object* object() const { return std::get_if<Object>(&data); }
  Object* object() { return std::get_if<Object>(&data); }
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// The last member of that name; nullptr when there is none.
const JsonValue* find_member(const JsonValue::Object& object, std::string_view name);
JsonValue* find_member(JsonValue::Object& object, std::string_view name);

}  // namespace sluice
