// Builds and reads small JSON trees. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/json_document.h"

namespace sluice {

inline JsonMember text_member(std::string name, std::string text) {
  return {std::move(name), JsonValue{std::move(text)}};
}

inline JsonMember tree_member(std::string name, JsonValue value) {
  return {std::move(name), std::move(value)};
}

// The text of a member; nullptr: there is none, or it is not a string.
inline const std::string* find_text(const JsonValue::Object& object, std::string_view name) {
  const JsonValue* value = find_member(object, name);
  return value == nullptr ? nullptr : value->string();
}

inline JsonValue tree(JsonValue::Object members) { return JsonValue{std::move(members)}; }

// {"type": "text", "text": text}: a part of a message's content.
inline JsonValue text_part(std::string text) {
  return tree({text_member("type", "text"), text_member("text", std::move(text))});
}

}  // namespace sluice
