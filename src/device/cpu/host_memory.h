// Memory this process may still take: what the kernel reports as available, or what the process's
// control groups (v1 or v2, every level up to the root) leave, whichever is smaller.
// Threads: any.
#pragma once

#include <string>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

// Reads proc/meminfo, proc/self/cgroup and sys/fs/cgroup under `root` ("/" but in tests).
Result<MemoryInfo> read_host_memory(const std::string& root);

}  // namespace sluice
