// Whether two JSON schemas provably have no value in common, so that `oneOf` is a plain choice.
// Pure function; any thread.
#pragma once

#include "base/json_document.h"

namespace sluice {

// Looks at types, at constants, and at constants of properties that both require. REQUIRES: a and b
// are no references.
bool provably_disjoint(const JsonValue& a, const JsonValue& b);

}  // namespace sluice
