// Translates a regular expression from the syntax of tokenizer.json (Oniguruma's, Ruby flavour)
// into PCRE2's, with the reference's character classes where the two libraries differ. A construct
// without an exact counterpart is refused by name, never approximated. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Errors: kUnsupported with the construct's name.
Result<std::string> to_pcre2_syntax(std::string_view pattern);

}  // namespace sluice
