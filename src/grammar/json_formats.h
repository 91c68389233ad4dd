// The formats of JSON Schema that strings are held to. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The format's texts as a regular expression; empty: the format is an annotation only.
std::string format_pattern(std::string_view format);

}  // namespace sluice
