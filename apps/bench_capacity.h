// `sluice bench capacity`: the largest request rate at which a server meets its objectives, found
// by probing it. One thread.
#pragma once

#include "apps/bench_options.h"

namespace sluice {

// Returns the exit code: 0 only when some rate met the objectives.
int run_bench_capacity(const BenchArguments& arguments);

}  // namespace sluice
