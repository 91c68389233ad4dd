// Declares to CLI11 the options that are the same for every command that runs a model.
// One thread.
#pragma once

#include "apps/engine_arguments.h"
#include "apps/warm_start.h"

namespace CLI {
class App;
}

namespace sluice {

void add_engine_options(CLI::App& command, EngineOptionTexts& texts);
// --warm and --warm-limit.
void add_warm_options(CLI::App& command, WarmArguments& arguments);

}  // namespace sluice
