#include "server/fast_json.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

namespace ondemand = simdjson::ondemand;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The end of the digits from `at` on.
std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// Whether `text` is a number as JSON writes it, and whether it has neither point nor exponent.
// simdjson hands over a number's text unchecked.
struct NumberForm {
  bool valid = false;
  bool integer = true;
};
NumberForm form_of(std::string_view text) {
  NumberForm form;
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const std::size_t whole = at;
  at = digits_end(text, at);
  if (at == whole || (text[whole] == '0' && at > whole + 1)) return form;
  if (at < text.size() && text[at] == '.') {
    form.integer = false;
    const std::size_t fraction = at + 1;
    at = digits_end(text, fraction);
    if (at == fraction) return form;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    form.integer = false;
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const std::size_t exponent = at;
    at = digits_end(text, exponent);
    if (at == exponent) return form;
  }
  form.valid = at == text.size();
  return form;
}

std::optional<JsonValue> read_number(std::string_view token) {
  const std::string_view text = token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
  const NumberForm form = form_of(text);
  if (!form.valid) return std::nullopt;
  const char* end = text.data() + text.size();
  if (form.integer) {
    std::int64_t value = 0;
    if (std::from_chars(text.data(), end, value).ec == std::errc{}) return JsonValue{value};
  }
  double value = 0;
  // A number too close to 0 is 0 for the other parser and out of range here: that one decides.
  if (std::from_chars(text.data(), end, value).ec != std::errc{}) return std::nullopt;
  return JsonValue{JsonDecimal{std::string(text)}};
}

std::optional<JsonValue> read_value(ondemand::value value);

std::optional<JsonValue> read_array(ondemand::value value) {
  JsonValue::Array items;
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return std::nullopt;
  for (auto element : array) {
    ondemand::value item;
    if (std::move(element).get(item) != simdjson::SUCCESS) return std::nullopt;
    auto read = read_value(item);
    if (!read) return std::nullopt;
    items.push_back(*std::move(read));
  }
  return JsonValue{std::move(items)};
}

std::optional<JsonValue> read_members(ondemand::object object) {
  JsonValue::Object members;
  for (auto member : object) {
    ondemand::field field;
    std::string_view name;
    if (std::move(member).get(field) != simdjson::SUCCESS) return std::nullopt;
    if (field.unescaped_key().get(name) != simdjson::SUCCESS) return std::nullopt;
    auto read = read_value(field.value());
    if (!read) return std::nullopt;
    members.push_back({std::string(name), *std::move(read)});
  }
  return JsonValue{std::move(members)};
}

std::optional<JsonValue> read_value(ondemand::value value) {
  auto type = ondemand::json_type::null;
  if (value.type().get(type) != simdjson::SUCCESS) return std::nullopt;
  switch (type) {
    case ondemand::json_type::array: return read_array(value);
    case ondemand::json_type::object: {
      ondemand::object object;
      if (value.get_object().get(object) != simdjson::SUCCESS) return std::nullopt;
      return read_members(object);
    }
    case ondemand::json_type::string: {
      std::string_view text;
      if (value.get_string().get(text) != simdjson::SUCCESS) return std::nullopt;
      return JsonValue{std::string(text)};
    }
    case ondemand::json_type::number: return read_number(value.raw_json_token());
    case ondemand::json_type::boolean: {
      bool flag = false;
      if (value.get_bool().get(flag) != simdjson::SUCCESS) return std::nullopt;
      return JsonValue{flag};
    }
    case ondemand::json_type::null: {
      bool null = false;
      if (value.is_null().get(null) != simdjson::SUCCESS || !null) return std::nullopt;
      return JsonValue{nullptr};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<JsonValue> read_json_fast(std::string_view text) {
  const simdjson::padded_string padded(text);
  ondemand::parser parser;
  ondemand::document document;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS) return std::nullopt;
  ondemand::object object;
  if (document.get_object().get(object) != simdjson::SUCCESS) return std::nullopt;
  auto value = read_members(object);
  // At the end of the text there is no location.
  const bool at_end = document.current_location().error() == simdjson::OUT_OF_BOUNDS;
  if (!at_end) return std::nullopt;
  return value;
}

}  // namespace sluice
