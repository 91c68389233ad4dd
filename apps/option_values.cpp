#include "apps/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/ascii.h"

namespace sluice {

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(ascii::trimmed(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

Result<std::int64_t> parse_integer(std::string_view option, std::string_view text, std::int64_t low,
                                   std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= low && value <= high) return value;
  const std::string range = high == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("of at least {}", low)
                                : fmt::format("between {} and {}", low, high);
  return invalid_argument(
      fmt::format("{} must be a whole number {}, got '{}'", option, range, text));
}

Result<std::int64_t> parse_memory_size(std::string_view option, std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KiB", 0x1p10},
                                            {"MiB", 0x1p20},
                                            {"GiB", 0x1p30},
                                            {"TiB", 0x1p40},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12}}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error == std::errc()) {
    const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
    for (const Unit& unit : kUnits) {
      const double bytes = number * unit.bytes;
      if (suffix == unit.name && bytes >= 1 && bytes < 0x1p62) {
        return static_cast<std::int64_t>(bytes);
      }
    }
  }
  return invalid_argument(
      fmt::format("{} must be a size such as 4GiB, 512MiB or 2GB, got '{}'", option, text));
}

Result<std::vector<double>> parse_percentiles(std::string_view list) {
  std::vector<double> percentiles;
  for (const std::string& text : split_list(list)) {
    const auto value = parse_number(text);
    if (!value || !(*value >= 0 && *value <= 100)) {
      return invalid_argument(
          fmt::format("--metric-percentiles '{}': write numbers from 0 to 100: 50,90,99.9", list));
    }
    percentiles.push_back(*value);
  }
  return percentiles;
}

}  // namespace sluice
