// Declares the engine options to CLI11, the same for every command that runs a model.
// One thread.
#pragma once

#include "apps/engine_arguments.h"

namespace CLI {
class App;
}

namespace sluice {

void add_engine_options(CLI::App& command, EngineOptionTexts& texts);

}  // namespace sluice
