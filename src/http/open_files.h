// The limit on open files and sockets of the process.
// Threads: any; called once, at start.
#pragma once

#include <cstdint>

namespace sluice::http {

// Raises the soft limit to the hard limit, because each connection is a file and the usual soft
// limit is 1,024. Returns the limit now in force.
std::int64_t raise_open_files_limit();

}  // namespace sluice::http
