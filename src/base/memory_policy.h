// On which memory nodes the system puts pages that threads touch first.
// Threads: any; each call is about the calling thread and those that it starts later.
#pragma once

#include <span>

#include "base/result.h"

namespace sluice {

// From now on new pages, also those of files that are read for the first time, go to these nodes in
// turn. Pages that are in memory stay. kUnsupported if the thread has a policy already (numactl),
// which stays, or if the system refuses. REQUIRES: at least one node, ids from 0 to 1,023.
Status spread_new_memory(std::span<const int> nodes);

}  // namespace sluice
