#include "workload/number_list.h"

#include <charconv>
#include <system_error>

namespace sluice {

std::optional<std::vector<double>> parse_number_list(std::string_view text, std::size_t most) {
  std::vector<double> numbers;
  while (numbers.size() < most) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    double& number = numbers.emplace_back();
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || stop != part.data() + part.size()) return std::nullopt;
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
  return std::nullopt;
}

}  // namespace sluice
