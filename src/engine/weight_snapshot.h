// Derived weights (model/weights.h) as a section of a snapshot: their bytes unchanged from the
// weights region. The section is mapped at its place and checked while steps begin (WeightStream);
// for a device that maps no files it is checked as a whole and then copied.
// Owner: the engine's loader. Threads: the engine's thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/weights.h"
#include "snapshot/snapshot.h"

namespace sluice {

// The section for these weights. Nothing: convert them, and offer them afterwards.
std::optional<UncheckedSection> find_weights_section(const WeightsLayout& layout,
                                                     const DeviceTraits& traits, ThreadPool& pool,
                                                     Snapshot& snapshot);

// Offers derived weights that were converted. REQUIRES: the arena lives until the snapshot is
// written.
void offer_weights(const WeightsLayout& layout, const Arena& arena, Device& device,
                   Snapshot& snapshot);

}  // namespace sluice
