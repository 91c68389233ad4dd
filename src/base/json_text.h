// JSON files that come with a model, as strict JSON. Python writes and reads more than the standard
// allows: integers of any size, NaN and Infinity; some editors add a byte-order mark. The parsers
// of this project refuse all of these, so every reader of such a file calls strict_json() first.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// The same document in which every number fits 64 bits or a finite double: larger integers become
// doubles, numbers beyond the largest double become that double with their sign, NaN becomes null.
// A byte-order mark is left out. Returns a part of `text`, or of `storage` when something changed.
// Text that is not JSON stays as it is, for the parser to report.
// Errors: kInvalidArgument: nested deeper than kMaxJsonDepth (base/json_depth.h).
Result<std::string_view> strict_json(std::string_view text, std::string& storage);

}  // namespace sluice
