// Letters whose upper or title case is more than one letter (ß -> SS). Sorted by code point.
#pragma once

#include <cstddef>

namespace sluice::jinja {

struct CaseExpansion {
  char32_t letter;
  char32_t upper[4];  // ends at 0
  char32_t title[4];
};
extern const CaseExpansion kCaseExpansions[];
extern const std::size_t kCaseExpansionCount;

}  // namespace sluice::jinja
