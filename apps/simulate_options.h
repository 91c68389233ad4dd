// Declares the options of `sluice simulate` to CLI11, for apps/command_line.cpp. One thread.
#pragma once

#include "apps/simulate.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace sluice {

CLI::App* add_simulate(CLI::App& root, SimulateArguments& arguments);

}  // namespace sluice
