// Reads fields of a JSON object; errors name the field. Shared by the readers of this folder. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace simdjson::dom {
class element;
}  // namespace simdjson::dom

namespace sluice::json {

using Element = simdjson::dom::element;

// "a.b" of a and b, or b when a is empty.
std::string join_path(std::string_view path, std::string_view key);
std::string index_path(std::string_view path, std::size_t index);

// False when the field is absent or null, or `object` is not an object.
bool find(const Element& object, std::string_view key, Element& out);

// Errors: kInvalidArgument naming path.key when it is missing (without a default) or of another
// type. The text lives as long as the parsed document.
Result<std::string_view> string_field(const Element& object, std::string_view path,
                                      std::string_view key);
Result<bool> bool_field(const Element& object, std::string_view path, std::string_view key,
                        std::optional<bool> absent = std::nullopt);
Result<std::uint64_t> count_field(const Element& object, std::string_view path,
                                  std::string_view key,
                                  std::optional<std::uint64_t> absent = std::nullopt);

Error wrong_type(std::string_view path, std::string_view wanted);

}  // namespace sluice::json
