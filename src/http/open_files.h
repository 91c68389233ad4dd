// How many files and sockets the process may have open.
// Threads: any; called once, at start.
#pragma once

#include <cstdint>

namespace sluice::http {

// Raises the soft limit to the hard one, since each connection is a file and the usual soft limit
// is 1,024. The limit now in force.
std::int64_t raise_open_files_limit();

}  // namespace sluice::http
