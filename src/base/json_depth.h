// How deeply a JSON text is nested, before anything builds a tree of it: 16 MB of brackets would
// take a gigabyte. Pure; any thread.
#pragma once

#include <string_view>

namespace sluice {

// No JSON file of a checkpoint is nested deeper.
inline constexpr int kMaxJsonDepth = 64;

// Whether brackets outside strings open more than `limit` levels. For text that is not JSON the
// answer means nothing.
bool json_deeper_than(std::string_view text, int limit);

}  // namespace sluice
