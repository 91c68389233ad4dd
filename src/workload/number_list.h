// Numbers between commas, as options of several parts have them: "0.5,5,60".
// Pure; any thread. Input may be any text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {

// Nothing when a part is no number as a whole, or when there are more than `most`. "nan" and "inf"
// are numbers: callers check their ranges.
std::optional<std::vector<double>> parse_number_list(std::string_view text, std::size_t most);

}  // namespace sluice
