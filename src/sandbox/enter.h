// The child's half of a sandbox. A process that spawn_sandboxed started calls enter_sandbox after
// exec, before it reads any client data. Afterwards it has only its open descriptors, its memory
// and its threads. There is no way back.
// Threads: REQUIRES that the process has one thread.
// Errors: a layer that this machine lacks is no error; the report names it with the reason. The
// caller decides whether it goes on (SandboxReport::complete). An error is a step without which the
// process is in no defined state.
#pragma once

#include "base/result.h"
#include "sandbox/options.h"
#include "sandbox/report.h"

namespace sluice {

// Adds the layers from kNetwork on to `report`.
Status enter_sandbox(const SandboxOptions& options, SandboxReport& report);

}  // namespace sluice
