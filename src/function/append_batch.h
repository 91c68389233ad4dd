// Joins the batches of outputs of several steps or engine loops.
// A function; any thread.
#pragma once

#include "server/engine_loop.h"

namespace sluice {

// Appends everything but the gauges; a newer progress replaces the older one. Ranges in `to` stay
// as they are.
void append_batch(OutputBatch from, OutputBatch& to);

}  // namespace sluice
