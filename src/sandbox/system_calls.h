// The seccomp filter of a compute process: an allow-list.
// Allowed are memory that is never executable, threads of the same process, clocks, waiting, and
// reads and writes of descriptors that the process has. Calls with which only an attack would begin
// (exec, ptrace, mount, another process's memory or descriptors, ...) kill the process. Every other
// call fails with EPERM, because libraries probe for features and accept a refusal.
// Threads: filters the calling thread and the threads it starts; call it while single-threaded.
#pragma once

#include "base/result.h"

namespace sluice {

// Installs the filter for good. REQUIRES: no_new_privs is set.
// kUnsupported if the kernel has no seccomp filters.
Status enter_system_call_filter();

}  // namespace sluice
