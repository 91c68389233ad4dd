// Sums of the gauges of several engines, for metrics of all of them.
// Functions; any thread.
#pragma once

#include "server/engine_loop.h"

namespace sluice {

// Adds counters only: those of an engine that has ended still count.
void add_totals(const EngineGauges& from, EngineGauges& to);
// Adds gauges and counters. The pages of a tier below are not added.
void add_gauges(const EngineGauges& from, EngineGauges& to);

}  // namespace sluice
