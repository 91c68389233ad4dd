#include "apps/option_values.h"

#include <fmt/format.h>

#include <algorithm>
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
