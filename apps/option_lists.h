// Lists of percentiles and of names, as options write them. Pure; any thread.
#pragma once

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

// --metric-percentiles: "50,90,99.9".
Result<std::vector<double>> parse_percentiles(std::string_view list);

}  // namespace sluice
