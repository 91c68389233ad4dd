// Converts JSON files that come with a model to strict JSON. Python writes and reads more than the
// standard allows: integers of any size, NaN and Infinity. Some editors add a byte-order mark. The
// parsers of this project refuse all of these, so code that reads such a file calls strict_json()
// first. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Returns the document with numbers that fit 64 bits or a finite double: larger integers become
// doubles, numbers beyond the largest double become the largest double with their sign, NaN becomes
// null. A byte-order mark is removed. The result is a part of `text`, or of `storage` if something
// changed. Text that is not JSON is unchanged; the parser reports it.
// Errors: kInvalidArgument: nested deeper than kMaxJsonDepth (base/json_depth.h).
Result<std::string_view> strict_json(std::string_view text, std::string& storage);

}  // namespace sluice
