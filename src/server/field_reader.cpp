#include "server/field_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "base/nearest_name.h"

namespace sluice {
namespace {

bool is_empty(const JsonValue& value) {
  if (const auto* text = value.string()) return text->empty();
  if (const auto* array = value.array()) return array->empty();
  if (const auto* object = value.object()) return object->empty();
  return false;
}

bool is_number(const JsonValue& value, std::int64_t number) {
  return whole_number(value) == number;
}

bool is_flag(const JsonValue& value, bool flag) {
  const bool* given = value.boolean();
  return given != nullptr && *given == flag;
}

struct NeutralRule {
  bool accepted;
  std::string_view text;
  std::string_view values = "[null]";  // JSON array of all accepted values
};

NeutralRule apply(Neutral neutral, const JsonValue& value) {
  switch (neutral) {
    case Neutral::kNull: return {false, "null"};
    case Neutral::kFalse: return {is_flag(value, false), "false", "[false, null]"};
    case Neutral::kTrue: return {is_flag(value, true), "true", "[true, null]"};
    case Neutral::kZero: return {is_number(value, 0), "0", "[0, null]"};
    case Neutral::kOne: return {is_number(value, 1), "1", "[1, null]"};
    case Neutral::kMinusOne: return {is_number(value, -1), "-1", "[-1, null]"};
    case Neutral::kEmpty: return {is_empty(value), "an empty value", R"(["", [], {}, null])"};
  }
  return {false, "null"};
}

}  // namespace

std::optional<std::int64_t> whole_number(const JsonValue& value) {
  if (const auto* integer = value.integer()) return *integer;
  const auto* decimal = value.decimal();
  if (decimal == nullptr) return std::nullopt;
  const double number = decimal->value();
  // 2^63 itself is a double and no int64.
  constexpr double kTooLarge = 9223372036854775808.0;
  if (number != std::floor(number) || number < -kTooLarge || number >= kTooLarge) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(number);
}

const JsonValue* FieldReader::find(std::string_view name, BodyFieldType type, std::int64_t min,
                                   std::int64_t max) {
  known_.push_back(name);
  if (recorded_ != nullptr) recorded_->add(name, type, min, max);
  if (failed()) return nullptr;
  const JsonValue* value = find_member(*object_, name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, std::int64_t min,
                                                 std::int64_t max) {
  const JsonValue* value = find(name, BodyFieldType::kInteger, min, max);
  if (value == nullptr) return std::nullopt;
  const auto number = whole_number(*value);
  if (number && *number >= min && *number <= max) return number;
  mistyped(name, *value, fmt::format("a whole number from {} to {}", min, max));
  return std::nullopt;
}

std::optional<float> FieldReader::number(std::string_view name) {
  const JsonValue* value = find(name, BodyFieldType::kNumber);
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = value->integer()) return static_cast<float>(*integer);
  if (const auto* decimal = value->decimal()) {
    const double number = decimal->value();
    if (std::fabs(number) <= double{FLT_MAX}) return static_cast<float>(number);
  }
  mistyped(name, *value, "a number");
  return std::nullopt;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const JsonValue* value = find(name, BodyFieldType::kBoolean);
  if (value == nullptr) return std::nullopt;
  if (const bool* flag = value->boolean()) return *flag;
  mistyped(name, *value, "true or false");
  return std::nullopt;
}

const std::string* FieldReader::string(std::string_view name, std::size_t max_bytes) {
  constexpr auto kAnyLength = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  const JsonValue* value = find(name, BodyFieldType::kString, 0,
                                static_cast<std::int64_t>(std::min(max_bytes, kAnyLength)));
  if (value == nullptr) return nullptr;
  const std::string* text = value->string();
  if (text != nullptr && text->size() <= max_bytes) return text;
  mistyped(name, *value,
           text == nullptr ? "a string" : fmt::format("a string of at most {} bytes", max_bytes));
  return nullptr;
}

const JsonValue::Array* FieldReader::array(std::string_view name) {
  const JsonValue* value = find(name, BodyFieldType::kArray);
  if (value == nullptr) return nullptr;
  if (value->array() == nullptr) mistyped(name, *value, "an array");
  return value->array();
}

const JsonValue::Object* FieldReader::object(std::string_view name) {
  const JsonValue* value = find(name, BodyFieldType::kObject);
  if (value == nullptr) return nullptr;
  if (value->object() == nullptr) mistyped(name, *value, "an object");
  return value->object();
}

std::optional<std::vector<TokenId>> FieldReader::token_ids(std::string_view name,
                                                           std::size_t max_count) {
  if (recorded_ != nullptr) recorded_->add(name, BodyFieldType::kTokenIds);
  const JsonValue::Array* items = array(name);
  if (items == nullptr) return std::nullopt;
  if (items->size() > max_count) {
    bad(name, fmt::format("got {} token ids; at most {} are served", items->size(), max_count));
    return std::nullopt;
  }
  return token_ids_in(*items, prefix_ + std::string(name));
}

std::optional<std::vector<TokenId>> FieldReader::token_ids_in(const JsonValue::Array& array,
                                                              const std::string& where) {
  // The engine's own check against the vocabulary follows; this one is for the type.
  constexpr std::int64_t kMaxId = std::numeric_limits<TokenId>::max() - 1;
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (const JsonValue& item : array) {
    const auto id = whole_number(item);
    if (!id || *id < 0 || *id > kMaxId) {
      const std::string param = fmt::format("{}[{}]", where, ids.size());
      fail(bad_field(param, fmt::format("{}: got {}; expected a token id from 0 to {}", param,
                                        shown_value(item), kMaxId)));
      return std::nullopt;
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

void FieldReader::read_into(std::string_view name, bool& out) {
  if (const auto value = boolean(name)) out = *value;
}

void FieldReader::read_into(std::string_view name, float& out, bool* given) {
  const auto value = number(name);
  if (!value) return;
  out = *value;
  if (given != nullptr) *given = true;
}

void FieldReader::refuse_unless_neutral(std::span<const RefusedField> fields) {
  for (const RefusedField& field : fields) {
    if (recorded_ != nullptr) {
      recorded_->add_refused(field.name, apply(field.neutral, JsonValue{}).values);
    }
    const JsonValue* value = find(field.name);
    if (value == nullptr) continue;
    const NeutralRule rule = apply(field.neutral, *value);
    if (rule.accepted) continue;
    unsupported(field.name, fmt::format("got {}; this server accepts only {} here; {}",
                                        shown_value(*value), rule.text, field.advice));
  }
}

void FieldReader::mistyped(std::string_view name, const JsonValue& value,
                           std::string_view expected) {
  bad(name, fmt::format("got {}; expected {}", shown_value(value), expected));
}

void FieldReader::bad(std::string_view name, std::string_view message) {
  const std::string param = prefix_ + std::string(name);
  fail(bad_field(param, fmt::format("{}: {}", param, message)));
}

void FieldReader::unsupported(std::string_view name, std::string_view message) {
  const std::string param = prefix_ + std::string(name);
  fail(unsupported_field(param, fmt::format("{}: {}", param, message)));
}

void FieldReader::missing(std::string_view name, std::string_view expected) {
  if (recorded_ != nullptr) return recorded_->require(name);
  bad(name, fmt::format("is missing; expected {}", expected));
}

void FieldReader::missing_either(std::string_view name, std::string_view other,
                                 std::string_view expected) {
  if (recorded_ != nullptr) return recorded_->require_either(name, other);
  missing(name, expected);
}

void FieldReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::check_unknown() {
  if (failed()) return;
  for (const JsonMember& member : *object_) {
    if (std::ranges::find(known_, member.name) != known_.end()) continue;
    if (ignored_ != nullptr && ignored_->size() >= kMaxIgnoredFields) return;
    const std::string_view near = nearest_name(member.name, known_);
    if (ignored_ == nullptr) return refuse_unknown(member.name, near);
    ignore(member.name, near);
  }
}

void FieldReader::refuse_unknown(const std::string& name, std::string_view near) {
  // A name may be as long as a body; shown_value cuts it.
  const std::string shown = shown_value(JsonValue{name});
  const std::string param = name.size() <= kMaxShownFieldBytes ? prefix_ + name : std::string();
  const std::string hint = near.empty() ? "see docs/api.md for the fields that are served"
                                        : fmt::format("did you mean \"{}\"?", near);
  fail(
      bad_field(param, fmt::format("unknown field {}{}{}; {}", shown, prefix_.empty() ? "" : " in ",
                                   prefix_.substr(0, prefix_.size() - !prefix_.empty()), hint)));
}

void FieldReader::ignore(const std::string& name, std::string_view near) {
  IgnoredField field{shown_field_name(prefix_ + name), std::string(near)};
  const auto has_name = [&](const IgnoredField& one) { return one.name == field.name; };
  if (std::ranges::none_of(*ignored_, has_name)) ignored_->push_back(std::move(field));
}

}  // namespace sluice
