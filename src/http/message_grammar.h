// The parts of HTTP/1.1 that requests and responses share (RFC 9112): header fields, lists in them,
// lengths and chunk sizes. Strict: a text with two readings is refused.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::http {

// Whether `c` may be part of a method or field name (RFC 9110, 5.6.2).
bool is_token_char(char c);
bool is_token(std::string_view text);

// Whether `text` may be a field's value: no control character except the tab.
bool is_field_text(std::string_view text);

// "name: value", the name a token directly before the colon.
bool is_field(std::string_view line);

// A header field's line in two parts. REQUIRES: the line has a colon.
struct Field {
  std::string_view name;
  std::string_view value;  // without blanks around it
};
// REQUIRES: the line has a colon.
Field split_field(std::string_view line);

// Content-Length: digits alone.
std::optional<std::uint64_t> parse_length(std::string_view value);

// The line before a chunk: a hexadecimal size, and extensions, which are ignored.
std::optional<std::uint64_t> parse_chunk_size(std::string_view line);

// `path` with each escape of an unreserved character (a letter, a digit, "-._~") as that character:
// both are the same path (RFC 3986, 6.2.2.2). All other escapes stay, "%2F" included, so that the
// result has the segments of `path`. A path with a "%" that begins no escape stays as it is.
std::string normal_path(std::string_view path);

// Whether a list such as Connection's has the word, compared without case.
bool list_has(std::string_view list, std::string_view word);

}  // namespace sluice::http
