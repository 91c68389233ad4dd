// Appends pieces of JSON text to a string, without a tree.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// A string with its quotes. Escapes only the characters that JSON requires. Bytes that are not
// UTF-8 become U+FFFD, one per maximal invalid part, so the result is always valid.
void append_json_string(std::string_view text, std::string& out);

// The same as a text of its own.
std::string json_string(std::string_view text);

void append_json_integer(std::int64_t value, std::string& out);

// [a,b,...]: calls `append` for each item, with commas between them.
template <class Items, class Append>
void append_json_list(const Items& items, std::string& out, Append append) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    append(item);
  }
  out += ']';
}

// The shortest text that reads back as the same float, with a point or exponent, so that clients
// see a float. REQUIRES: finite.
void append_json_float(float value, std::string& out);

}  // namespace sluice
