// JSON pointers (RFC 6901), which references in a schema use. Pure function; any thread.
#pragma once

#include <string_view>

#include "base/json_document.h"

namespace sluice {

// The value that the pointer ("/$defs/name") names in `root`; nullptr: it names none.
const JsonValue* find_by_pointer(const JsonValue& root, std::string_view pointer);

}  // namespace sluice
