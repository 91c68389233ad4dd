// FileStore: lends memory of the machine: a file of memory for each borrower (sealed against
// another size, so that no borrower can make it shorter or longer), in large pages where the system
// allows it (base/large_pages.h), because they come back much faster. Memory is taken from the
// system here, before a borrower hears of it: it counts as memory of this process, and a borrower
// that writes to it needs no more. Owner: PageLender. Threads: its thread. Units: bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lent_pages/lent_part.h"

namespace sluice {

// `most`: of each borrower. `available`: the memory that the system can still give, if it is known;
// `spare` of it stays.
std::unique_ptr<LentStore> make_file_store(std::int64_t most,
                                           std::function<std::int64_t()> available,
                                           std::int64_t spare);

}  // namespace sluice
