#include "http/message_grammar.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"

namespace sluice::http {

namespace {

bool is_letter_or_digit(char c) {
  return ascii::is_digit(c) || (ascii::lower(c) >= 'a' && ascii::lower(c) <= 'z');
}

bool is_unreserved(char c) {
  return is_letter_or_digit(c) || std::string_view("-._~").find(c) != std::string_view::npos;
}

}  // namespace

bool is_token_char(char c) {
  return is_letter_or_digit(c) ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

bool is_field_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || c == '\t';
  });
}

bool is_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  return colon != std::string_view::npos && is_token(line.substr(0, colon)) &&
         is_field_text(line.substr(colon + 1));
}

Field split_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  return {line.substr(0, colon), ascii::trimmed(line.substr(colon + 1))};
}

std::optional<std::uint64_t> parse_length(std::string_view value) {
  std::uint64_t length = 0;
  const char* end = value.data() + value.size();
  // from_chars takes no sign for unsigned numbers and no blanks.
  const auto [stop, error] = std::from_chars(value.data(), end, length);
  if (value.empty() || error != std::errc() || stop != end) return std::nullopt;
  return length;
}

std::optional<std::uint64_t> parse_chunk_size(std::string_view line) {
  std::uint64_t size = 0;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data(), end, size, 16);
  const std::string_view extensions =
      ascii::trimmed(line.substr(static_cast<std::size_t>(stop - line.data())));
  const bool has_end = extensions.empty() || extensions.front() == ';';
  if (line.empty() || error != std::errc() || !has_end || !is_field_text(extensions)) {
    return std::nullopt;
  }
  return size;
}

std::string normal_path(std::string_view path) {
  std::string normal;
  normal.reserve(path.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      normal += path[i];
      continue;
    }
    const std::string_view digits = path.substr(i + 1, 2);
    unsigned char value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
    if (digits.size() != 2 || error != std::errc() || stop != end) return std::string(path);
    if (is_unreserved(static_cast<char>(value))) {
      normal += static_cast<char>(value);
    } else {
      normal += path.substr(i, 3);
    }
    i += 2;
  }
  return normal;
}

bool list_has(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (ascii::equals_ignoring_case(ascii::trimmed(list.substr(0, comma)), word)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace sluice::http
