// The memory that a process shares with no other one, as /proc shows it.
// A function; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace sluice {

// Resident bytes of no file and no shared memory; 0 if /proc does not show the process.
std::int64_t own_memory_bytes(pid_t process);

}  // namespace sluice
