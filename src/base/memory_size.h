// Sizes of memory as people write them: "4GiB", "512MiB", "2GB", "1.5GiB", "1000000" (bytes).
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Bytes, at least 1. `field` names the option or key in the error.
Result<std::int64_t> parse_memory_size(std::string_view field, std::string_view text);

}  // namespace sluice
