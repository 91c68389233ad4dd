// Parses the JSON of a request's body to a tree (base/json_document.h) in linear time. Depth and
// number of values are checked before anything is built. If a key appears twice, the last value is
// used, as in Python.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json_document.h"
#include "server/api_error.h"

namespace sluice {

// Levels of brackets in a body.
inline constexpr int kMaxBodyDepth = 128;
// Values in a body, nested ones included: far above the longest prompt of token ids.
inline constexpr std::size_t kMaxBodyValues = 2'000'000;
// Fields of the body itself; the reader searches all of them for each known field.
inline constexpr std::size_t kMaxBodyFields = 1024;

// Errors: 400 that says where (byte offset) and what: empty, not UTF-8, not JSON, anything after
// the value, not an object, too deep, too many values or fields.
ApiResult<JsonValue::Object> parse_request_json(std::string_view body);

// Any value, in a body or in a string of one, with the same bounds of depth and number of values:
// code that walks a deeper tree would overflow its stack. Errors call it `subject`. REQUIRES: valid
// UTF-8.
ApiResult<JsonValue> parse_bounded_json(std::string_view body,
                                        std::string_view subject = "the body");

// The slower of the two parsers, which explains the text that the fast one (fast_json.h) refuses.
// Errors: 400 for text that is not JSON, with the place and the reason.
ApiResult<JsonValue> read_json_or_explain(std::string_view body,
                                          std::string_view subject = "the body");

// Appends the text of a value, without spaces between its parts.
void append_json(const JsonValue& value, std::string& out);

// A value for error messages: short, and always valid UTF-8.
std::string shown_value(const JsonValue& value);

}  // namespace sluice
