// Sizes of memory as people write them: "4GiB", "512MiB", "2GB", "1.5GiB", "1000000" (bytes).
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Bytes, at least 1. The error is the rest of a sentence that begins with the field's name.
Result<std::int64_t> read_memory_size(std::string_view text);
// The same; `field` names the option or key in the error.
Result<std::int64_t> parse_memory_size(std::string_view field, std::string_view text);

}  // namespace sluice
