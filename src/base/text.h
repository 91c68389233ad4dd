// Text from parts. fmt's own iterators and ranges (fmt::format_to into a string, fmt::join) compile
// all of its writers again in each file that uses them, seconds each; these go through its library.
// Pure functions; any thread.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace sluice {

// Appends fmt::format(format, args...) to `out`.
template <typename... Args>
void append_format(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  out += fmt::vformat(format, fmt::make_format_args(args...));
}

// The parts (texts or whole numbers) with `separator` between them.
template <typename Range>
std::string join(const Range& parts, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out += separator;
    first = false;
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(part)>>) {
      out += std::to_string(part);
    } else {
      out += part;
    }
  }
  return out;
}

}  // namespace sluice
