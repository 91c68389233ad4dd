// warm_up(): requests before a run that fill the server's caches and capture its graphs, and that
// share no prompt with the run.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "loadgen/load_run.h"

namespace sluice {

// The number of the first prompt of a warm-up; see LoadOptions::first_number.
inline constexpr std::int64_t kWarmUpNumber = std::int64_t{1} << 40;

// Sends `count` requests like the workload's first and waits for the answers. The first failure is
// the error. REQUIRES: the workload has a request. Blocks the calling thread.
Status warm_up(const LoadOptions& load, const Workload& workload, const PromptMaker& prompts,
               std::int64_t count);

}  // namespace sluice
