// The memory that this process may still take: the available memory that the kernel reports, or the
// rest of its control groups' limits (v1 or v2, every level up to the root), whichever is smaller.
// Threads: any.
#pragma once

#include <string>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

// Reads proc/meminfo, proc/self/cgroup and sys/fs/cgroup under `root` ("/" outside tests).
Result<MemoryInfo> read_host_memory(const std::string& root);

}  // namespace sluice
