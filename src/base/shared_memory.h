// Shared memory: a memfd of a fixed size, which processes share by passing its descriptor. It can
// neither shrink nor grow, so that no process that maps it can lose it.
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

// Zeroed memory, readable and writable. `name` shows in /proc/PID/maps. kResourceExhausted when the
// system refuses.
Result<FileDescriptor> create_shared_memory(const std::string& name, std::size_t bytes);

// Another descriptor of the same memory, which cannot write: for readers that must never be able to
// make their mapping writable. kUnavailable without /proc.
Result<FileDescriptor> read_only_descriptor(int fd);

}  // namespace sluice
