// Landlock without any rule: the process can reach no path, no TCP port, and (ABI 6) no abstract
// socket and no process outside of its domain. Open descriptors keep working.
// Threads: restricts the calling thread and the threads it starts; call it while single-threaded.
#pragma once

#include "base/result.h"

namespace sluice {

// The kernel's Landlock version. kUnsupported if the kernel lacks or has disabled Landlock.
Result<int> landlock_version();

// Restricts the process with everything that `version` knows. REQUIRES: no_new_privs is set.
Status enter_landlock(int version);

}  // namespace sluice
