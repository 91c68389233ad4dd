// `sluice kv`: the folder of --kv-disk without a server.
// Functions; one thread.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace sluice {

struct KvArguments {
  enum class Action : std::uint8_t { kList, kVerify, kClear };
  Action action = Action::kList;
  std::string folder;
  std::string key_file;  // for kVerify: --kv-disk-key of the server
};

// The commands `kv ls`, `kv verify` and `kv clear`. Returns the command.
CLI::App* add_kv(CLI::App& root, KvArguments& arguments);

// Returns the exit code.
int run_kv(const KvArguments& arguments);

}  // namespace sluice
