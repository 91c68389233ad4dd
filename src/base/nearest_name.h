// The known name that a mistyped one probably means, for "did you mean".
// Pure; any thread.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

// The first of the known names with the fewest single-character edits from `name`: at most two, and
// fewer for short names. Empty: none is that near. Names beyond 40 bytes are near to none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace sluice
