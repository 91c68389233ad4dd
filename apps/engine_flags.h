// The engine options as CLI11 sees them: the same for every command that runs a model.
// One thread.
#pragma once

#include "engine/engine_options.h"

namespace CLI {
class App;
}

namespace sluice {

void add_engine_options(CLI::App& command, EngineOptionTexts& texts);

}  // namespace sluice
