// The values of options: numbers, sizes, lists. Errors name the option. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// "a, b" -> "a", "b"; "" -> none.
std::vector<std::string> split_list(std::string_view text);

// A finite number and nothing else.
std::optional<double> parse_number(std::string_view text);

// A whole number from low to high. `option` is for messages.
Result<std::int64_t> parse_integer(std::string_view option, std::string_view text, std::int64_t low,
                                   std::int64_t high);

// --metric-percentiles: "50,90,99.9".
Result<std::vector<double>> parse_percentiles(std::string_view list);

}  // namespace sluice
