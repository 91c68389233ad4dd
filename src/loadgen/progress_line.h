// The line that shows the progress of a run. Pure; any thread.
#pragma once

#include <string>

#include "loadgen/load_run.h"

namespace sluice {

// "[####......] 412/1000  16 running  0 failed  3.2 req/s  410 tok/s  P99 TTFT 120 ms, TBT 34 ms
// 2:05". `bar`: with the bar in front.
std::string progress_line(const LoadProgress& progress, bool bar);

}  // namespace sluice
