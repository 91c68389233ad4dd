// Text as Python's str sees it: UTF-8 counted in code points, Unicode case and classes, repr of
// strings and floats. Pure functions; any thread. REQUIRES everywhere: valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace sluice::jinja {

bool is_ascii(std::string_view text);
// The byte position of code point `index`; text.size() when there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);
// The code point at byte `*position`; advances `*position` past it.
inline char32_t next_code_point(std::string_view text, std::size_t* position) {
  const utf8::CodePoint c = utf8::decode(text, *position);
  *position += c.bytes;
  return c.value;
}

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_casefold(std::string_view text);
std::string capitalize(std::string_view text);
// Python's str.title().
std::string title_case(std::string_view text);
std::string swap_case(std::string_view text);

enum class Side : std::uint8_t { kLeft, kRight, kBoth };
std::string_view strip_space(std::string_view text, Side side);
// Removes code points that are in `chars`.
std::string_view strip_chars(std::string_view text, std::string_view chars, Side side);

// str.split() without a separator; at most `max_splits` when it is not negative.
std::vector<std::string_view> split_space(std::string_view text, std::int64_t max_splits,
                                          Side from);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// repr(str): quoted and escaped as Python does.
std::string quote(std::string_view text);
// repr(float).
std::string float_text(double value);

// int(str) and float(str) as Python reads them; nullopt for a ValueError.
std::optional<std::int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace sluice::jinja
