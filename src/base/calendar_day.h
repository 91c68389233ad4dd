// Calendar days as text, YYYY-MM-DD, for example 2026-11-25: the order of such texts is that of the
// days. Pure; any thread.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Absent if the text has another form, or names a day that does not exist.
inline std::optional<std::chrono::year_month_day> parse_day(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  bool digits = true;
  const auto number = [text, &digits](std::size_t at, std::size_t count) {
    unsigned value = 0;
    for (const char digit : text.substr(at, count)) {
      digits = digits && digit >= '0' && digit <= '9';
      value = 10 * value + static_cast<unsigned char>(digit) - '0';
    }
    return value;
  };
  const std::chrono::year_month_day day(std::chrono::year(static_cast<int>(number(0, 4))),
                                        std::chrono::month(number(5, 2)),
                                        std::chrono::day(number(8, 2)));
  if (!digits || !day.ok()) return std::nullopt;
  return day;
}

inline std::string day_text(std::chrono::year_month_day day) {
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()),
                     static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
}

}  // namespace sluice
