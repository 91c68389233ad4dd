#include "apps/number_range.h"

#include <fmt/format.h>

#include <string>

#include "apps/option_values.h"

namespace sluice {

CLI::Validator number_between(double least, double most) {
  const auto check = [=](const std::string& text) -> std::string {
    const auto value = parse_number(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("'{}' is no number from {} to {}", text, least, most);
  };
  return {check, "NUMBER", "bounded number"};
}

}  // namespace sluice
