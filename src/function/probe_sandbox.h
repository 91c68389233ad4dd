// Tells which layers of the sandbox this machine has, by starting one function process. The process
// builds its layers, reports them and ends; it gets no model and no data.
// Threads: one caller at a time, and not beside a ProcessEngineLoop.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/options.h"
#include "sandbox/report.h"

namespace sluice {

// `command`: as ProcessEngineLoop::Options::command. kUnavailable if the process cannot start, or
// ends or is silent for ten seconds before it reports.
Result<SandboxReport> probe_sandbox(const std::vector<std::string>& command,
                                    const SandboxOptions& options);

}  // namespace sluice
