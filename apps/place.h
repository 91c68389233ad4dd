// `sluice place FILE`: places models of known memory needs on servers, and pairs lenders with
// borrowers in each (docs/placement.md).
// Functions; one thread.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace sluice {

struct PlaceArguments {
  std::string file;
  std::string solver = "cbc";
  double time_limit_s = 4;
  bool json = false;
};

// Declares the command. Returns it.
CLI::App* add_place(CLI::App& root, PlaceArguments& arguments);

// Returns the exit code.
int run_place(const PlaceArguments& arguments);

}  // namespace sluice
