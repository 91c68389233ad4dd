#include "grammar/one_of.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

constexpr std::array<std::string_view, 6> kTypes = {"null",   "boolean", "number",
                                                    "string", "array",   "object"};
// Properties with constants that are compared: more would take long for large schemas.
constexpr int kMaxTags = 8;
constexpr std::uint32_t kEveryType = (1U << kTypes.size()) - 1;

std::uint32_t type_bit(std::string_view name) {
  if (name == "integer") name = "number";
  const auto at = std::ranges::find(kTypes, name);
  return at == kTypes.end() ? kEveryType : 1U << (at - kTypes.begin());
}

std::uint32_t type_of(const JsonValue& value) {
  if (value.is_null()) return type_bit("null");
  if (value.boolean() != nullptr) return type_bit("boolean");
  if (value.string() != nullptr) return type_bit("string");
  if (value.array() != nullptr) return type_bit("array");
  return type_bit(value.object() != nullptr ? "object" : "number");
}

// The values that the schema lists; nothing if it lists none.
std::optional<std::vector<const JsonValue*>> listed(const JsonValue::Object& schema) {
  if (const JsonValue* constant = find_member(schema, "const")) return std::vector{constant};
  const JsonValue* values = find_member(schema, "enum");
  if (values == nullptr || values->array() == nullptr) return std::nullopt;
  std::vector<const JsonValue*> list;
  for (const JsonValue& value : *values->array()) list.push_back(&value);
  return list;
}

std::uint32_t types_of(const JsonValue::Object& schema) {
  if (const auto values = listed(schema)) {
    std::uint32_t types = 0;
    for (const JsonValue* value : *values) types |= type_of(*value);
    return types;
  }
  const JsonValue* type = find_member(schema, "type");
  if (type == nullptr) return kEveryType;
  if (type->string() != nullptr) return type_bit(*type->string());
  if (type->array() == nullptr) return kEveryType;
  std::uint32_t types = 0;
  for (const JsonValue& name : *type->array()) {
    types |= name.string() != nullptr ? type_bit(*name.string()) : kEveryType;
  }
  return types;
}

// Only strings are compared: equal numbers and objects have many texts.
bool values_differ(const JsonValue::Object& a, const JsonValue::Object& b) {
  const auto left = listed(a);
  const auto right = listed(b);
  if (!left || !right) return false;
  return std::ranges::all_of(*left, [&](const JsonValue* x) {
    return std::ranges::all_of(*right, [&](const JsonValue* y) {
      if (type_of(*x) != type_of(*y)) return true;
      return x->string() != nullptr && *x->string() != *y->string();
    });
  });
}

bool requires_property(const JsonValue::Object& schema, std::string_view name) {
  const JsonValue* required = find_member(schema, "required");
  if (required == nullptr || required->array() == nullptr) return false;
  return std::ranges::any_of(*required->array(), [&](const JsonValue& item) {
    return item.string() != nullptr && *item.string() == name;
  });
}

bool tagged_apart(const JsonValue::Object& a, const JsonValue::Object& b) {
  const JsonValue* left = find_member(a, "properties");
  const JsonValue* right = find_member(b, "properties");
  if (left == nullptr || right == nullptr || left->object() == nullptr ||
      right->object() == nullptr) {
    return false;
  }
  int candidates = 0;
  return std::ranges::any_of(*left->object(), [&](const JsonMember& property) {
    const JsonValue::Object* schema = property.value.object();
    if (schema == nullptr || !listed(*schema) || ++candidates > kMaxTags) return false;
    const JsonValue* other = find_member(*right->object(), property.name);
    return other != nullptr && other->object() != nullptr && requires_property(a, property.name) &&
           requires_property(b, property.name) && values_differ(*schema, *other->object());
  });
}

}  // namespace

bool provably_disjoint(const JsonValue& a, const JsonValue& b) {
  if (a.object() == nullptr || b.object() == nullptr) return false;
  const JsonValue::Object& left = *a.object();
  const JsonValue::Object& right = *b.object();
  if ((types_of(left) & types_of(right)) == 0) return true;
  if (values_differ(left, right)) return true;
  const bool objects = types_of(left) == type_bit("object") && types_of(left) == types_of(right);
  return objects && tagged_apart(left, right);
}

}  // namespace sluice
