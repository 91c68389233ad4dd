// The parts of an OutputBatch (engine_loop.h) that an engine in this process fills.
// Pure functions; the engine's thread.
#pragma once

#include "base/clock.h"
#include "engine/engine.h"
#include "request/request.h"
#include "server/engine_loop.h"

namespace sluice {

void append_output(const ChoiceOutput& output, TimePoint now, OutputBatch& batch);
// Appends the end of a request that never reached the engine.
void append_cancelled(const Request& request, TimePoint now, OutputBatch& batch);
EngineGauges gauges_of(const Engine& engine);

}  // namespace sluice
