// Text that comes in pieces may end inside a marker. Its reader holds back that much.
// Pure function; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace sluice {

// Bytes of the longest end of `text` that is a proper start of `pattern`. REQUIRES: a pattern that
// is not empty.
inline std::size_t partial_match(std::string_view text, std::string_view pattern) {
  for (std::size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n) {
    if (text.ends_with(pattern.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace sluice
