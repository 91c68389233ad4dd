// The commands of `sluice snapshot`, as CLI11 sees them: apps/command_line.cpp's part for them.
// One thread.
#pragma once

#include "apps/snapshot.h"

namespace CLI {
class App;
}

namespace sluice {

// Fills in the action once the command was parsed. Returns the command.
CLI::App* add_snapshot(CLI::App& root, SnapshotArguments& arguments);

}  // namespace sluice
