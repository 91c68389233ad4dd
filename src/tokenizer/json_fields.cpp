#include "tokenizer/json_fields.h"

#include <simdjson.h>

namespace sluice::json {

std::string join_path(std::string_view path, std::string_view key) {
  std::string joined(path);
  if (!joined.empty()) joined += '.';
  joined += key;
  return joined;
}

std::string index_path(std::string_view path, std::size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

Error wrong_type(std::string_view path, std::string_view wanted) {
  return invalid_argument(std::string(path) + " must be " + std::string(wanted));
}

bool find(const Element& object, std::string_view key, Element& out) {
  simdjson::dom::object fields;
  if (object.get(fields) != simdjson::SUCCESS) return false;
  return fields.at_key(key).get(out) == simdjson::SUCCESS && !out.is_null();
}

Result<std::string_view> string_field(const Element& object, std::string_view path,
                                      std::string_view key) {
  Element field;
  std::string_view value;
  if (!find(object, key, field) || field.get(value) != simdjson::SUCCESS) {
    return wrong_type(join_path(path, key), "a string");
  }
  return value;
}

Result<bool> bool_field(const Element& object, std::string_view path, std::string_view key,
                        std::optional<bool> absent) {
  Element field;
  if (!find(object, key, field) && absent) return *absent;
  bool value = false;
  if (!find(object, key, field) || field.get(value) != simdjson::SUCCESS) {
    return wrong_type(join_path(path, key), "true or false");
  }
  return value;
}

Result<std::uint64_t> count_field(const Element& object, std::string_view path,
                                  std::string_view key, std::optional<std::uint64_t> absent) {
  Element field;
  if (!find(object, key, field) && absent) return *absent;
  std::uint64_t value = 0;
  if (!find(object, key, field) || field.get(value) != simdjson::SUCCESS) {
    return wrong_type(join_path(path, key), "a number that is not negative");
  }
  return value;
}

}  // namespace sluice::json
