// Shared memory: a memfd of fixed size that processes share by passing its descriptor. It cannot
// shrink, so a process that maps it never loses pages.
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
// kUnavailable if /proc is not mounted.
Result<FileDescriptor> read_only_descriptor(int fd);

}  // namespace sluice
