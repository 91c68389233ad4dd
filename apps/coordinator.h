// `sluice coordinator`: divides memory between processes (docs/elastic-memory.md).
// Threads: the event loop runs on the caller's.
#pragma once

#include <string>
#include <vector>

#include "apps/etcd_options.h"

namespace CLI {
class App;
}

namespace sluice {

struct CoordinatorArguments {
  std::string host = "127.0.0.1";
  std::string port = "8100";
  std::string token_file;
  std::vector<std::string> budgets;  // DEVICE=SIZE
  double expiry_s = 10;
  EtcdArguments etcd = {.prefix = "/sluice/lending"};  // without: the state is in memory only
};

// Declares the command. Returns it.
CLI::App* add_coordinator(CLI::App& root, CoordinatorArguments& arguments);

// Returns the exit code.
int run_coordinator(const CoordinatorArguments& arguments);

}  // namespace sluice
