// Shared memory: a memfd of a fixed size, which processes share by passing its descriptor. It can
// neither shrink nor grow, so a process that maps it never loses pages.
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

// Creates zeroed, writable memory. `name` shows in /proc/PID/maps. kResourceExhausted when the
// system refuses.
Result<FileDescriptor> create_shared_memory(const std::string& name, std::size_t bytes);

// Opens a read-only descriptor of the same memory, whose mappings can never become writable.
// kUnavailable without /proc.
Result<FileDescriptor> read_only_descriptor(int fd);

}  // namespace sluice
