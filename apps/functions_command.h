// `sluice functions publish`: makes a file the functions file of a group of gateways.
// Functions; one thread.
#pragma once

#include <string>

#include "apps/gateway_member.h"

namespace CLI {
class App;
}

namespace sluice {

struct FunctionsArguments {
  std::string file;
  GroupArguments group;
};

// The command `functions publish`. Returns `functions`.
CLI::App* add_functions(CLI::App& root, FunctionsArguments& arguments);

// Returns the exit code.
int run_functions(const FunctionsArguments& arguments);

// The options of a gateway that shares etcd with others.
void add_group_options(CLI::App& command, GroupArguments& arguments);

}  // namespace sluice
