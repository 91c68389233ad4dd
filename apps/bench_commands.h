// Declares the options of `sluice bench`'s commands to CLI11, for apps/command_line.cpp. One
// thread.
#pragma once

#include "apps/bench_offline.h"
#include "apps/bench_options.h"

namespace CLI {
class App;
}

namespace sluice {

struct BenchCommands {
  CLI::App* serve = nullptr;
  CLI::App* capacity = nullptr;
  CLI::App* offline = nullptr;
};

BenchCommands add_bench(CLI::App& root, BenchArguments& arguments, OfflineArguments& offline);

}  // namespace sluice
