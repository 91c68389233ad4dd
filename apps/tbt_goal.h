// Turns the goals of `--token-budget auto|time` and `--tbt-slo-ms` into numbers in EngineOptions.
// Reads the stored machine profile of the model. If there is none, measures the machine (about
// ten seconds) and stores the profile. docs/token-budget.md is the page for users.
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

// Returns the options to load the engine with. Options that state the budget as a number are not
// changed. Logs the choice and its reason. `snapshot save` collects the stored profile with every
// budget. A goal that cannot be kept, and a profile that can be neither read nor made, are
// warnings: a goal never prevents a start.
Result<EngineOptions> with_token_budget(const std::string& directory, const EngineOptions& options,
                                        Device& device, ThreadPool& pool, const Clock& clock,
                                        Snapshot& snapshot);

}  // namespace sluice
