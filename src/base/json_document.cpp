#include "base/json_document.h"

#include <charconv>
#include <utility>

namespace sluice {

double JsonDecimal::value() const {
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

const JsonValue* find_member(const JsonValue::Object& object, std::string_view name) {
  for (auto it = object.rbegin(); it != object.rend(); ++it) {
    if (it->name == name) return &it->value;
  }
  return nullptr;
}

JsonValue* find_member(JsonValue::Object& object, std::string_view name) {
  return const_cast<JsonValue*>(find_member(std::as_const(object), name));
}

}  // namespace sluice
