// `sluice kv`: the folder of --kv-disk without a server.
// Functions; one thread.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace sluice {

struct KvArguments {
  bool clear = false;  // else: list
  std::string folder;
};

// The commands `kv ls` and `kv clear`. Returns the command.
CLI::App* add_kv(CLI::App& root, KvArguments& arguments);

// Returns the exit code.
int run_kv(const KvArguments& arguments);

}  // namespace sluice
