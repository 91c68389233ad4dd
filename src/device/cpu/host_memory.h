// The memory that this process may still take: the available memory that the kernel reports, or the
// rest of its control groups' limits (v1 or v2, every level up to the root), whichever is smaller.
// Both limits of v2 count: at memory.high the kernel slows the group down, at memory.max it kills.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"

namespace sluice {

struct MemoryState {
  std::int64_t total = 0;
  std::int64_t left = 0;            // negative: more is used than the limit allows
  std::optional<Duration> stalled;  // of processes that waited for memory, since the boot: those of
                                    // the own control group (v2), else all; absent: not known
};
// The same, with how short memory is.
Result<MemoryState> read_memory_state(const std::string& root);

// Reads proc/meminfo, proc/self/cgroup and sys/fs/cgroup under `root` ("/" outside tests).
Result<MemoryInfo> read_host_memory(const std::string& root);

}  // namespace sluice
