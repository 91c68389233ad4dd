// ChunkStore: lends chunks of a device's memory. A chunk is made when a borrower gets it, and its
// descriptor crosses. It counts as lent until the borrower says that it has dropped it, or its
// process has ended: also when its link is gone. So a borrower that hangs keeps its chunks as long
// as it lives, and nothing else is kept from working by that. Owner: PageLender. Threads: its
// thread. Units: bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device_chunks.h"
#include "lent_pages/lent_part.h"

namespace sluice {

// All borrowers share the places of `chunks`. Growth leaves `spare` of the device's memory.
std::unique_ptr<LentStore> make_chunk_store(std::unique_ptr<DeviceChunks> chunks,
                                            std::int64_t spare);

}  // namespace sluice
