// The options of `sluice simulate`, as CLI11 sees them: apps/command_line.cpp's part for it. One
// thread.
#pragma once

#include "apps/simulate.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace sluice {

CLI::App* add_simulate(CLI::App& root, SimulateArguments& arguments);

}  // namespace sluice
