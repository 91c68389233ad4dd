// `sluice adapter`: signatures of adapters, for `require_signature` of a functions file.
// Functions; one thread.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace sluice {

struct AdapterArguments {
  std::string folder;
  std::string key_file;
};

// The command `adapter sign`. Returns `adapter`.
CLI::App* add_adapter(CLI::App& root, AdapterArguments& arguments);

// Returns the exit code.
int run_adapter(const AdapterArguments& arguments);

}  // namespace sluice
