// `sluice bench serve`: sends load to a server and measures it as its clients see it. One thread.
#pragma once

#include "apps/bench_options.h"

namespace sluice {

// Returns the exit code: 0 only when no request failed.
int run_bench_serve(const BenchArguments& arguments);

}  // namespace sluice
