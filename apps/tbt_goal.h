// `--token-budget auto` and `time`, `--tbt-slo-ms`: from the goal to numbers in EngineOptions, by
// the machine profile that is kept for the model, or else by one that is measured now in some ten
// seconds and kept. docs/token-budget.md tells users.
// Owner: a command. Threads: the engine's.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/engine_options.h"
#include "snapshot/snapshot.h"

namespace sluice {

// Returns the options to load the engine with; those with a number as budget are left alone. The
// choice and its reason go to the log. A snapshot of `snapshot save` collects the profile that is
// kept, whatever the budget. kInvalidArgument for a goal that cannot be met.
Result<EngineOptions> with_token_budget(const std::string& directory, const EngineOptions& options,
                                        Device& device, ThreadPool& pool, const Clock& clock,
                                        Snapshot& snapshot);

}  // namespace sluice
