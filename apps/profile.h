// `sluice profile`: measures the cost of steps on this machine with a model, reports the TBT goals
// and token budgets that follow, and stores the profile for `--token-budget auto` and `time`. With
// objectives it also finds the KV memory that the model needs. One thread.
#pragma once

#include <string>

#include "apps/engine_arguments.h"
#include "apps/profile_memory.h"

namespace sluice {

struct ProfileArguments {
  std::string model;
  std::string output;      // file; empty: in the user's cache folder
  std::string report;      // folder; empty: no plots
  std::string time_limit;  // seconds; empty: 120
  bool json = false;
  MemoryProfileArguments memory;
  EngineOptionTexts engine;
};

// Returns the exit code.
int run_profile(const ProfileArguments& arguments);

}  // namespace sluice
