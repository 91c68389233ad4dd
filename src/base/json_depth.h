// Checks how deeply a JSON text is nested before a parser builds a tree of it: a tree of 16 MB of
// brackets takes a gigabyte. Pure; any thread.
#pragma once

#include <string_view>

namespace sluice {

// Nesting limit for the JSON files of a checkpoint; real ones stay far below it.
inline constexpr int kMaxJsonDepth = 64;

// Whether brackets outside strings open more than `limit` levels. The result has no meaning for
// text that is not JSON.
bool json_deeper_than(std::string_view text, int limit);

}  // namespace sluice
