// random_epoch(): the first epoch of a process that knows nothing of those before it: it differs
// from theirs with near certainty. Any thread.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace sluice {

// 1 to 2^52 + 1, followed by a million epochs that no other process is likely to have.
Result<std::uint64_t> random_epoch();

}  // namespace sluice
