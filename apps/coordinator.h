// `sluice coordinator`: divides memory between processes (docs/elastic-memory.md).
// Threads: the event loop runs on the caller's.
#pragma once

#include <string>
#include <vector>

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
  std::vector<std::string> etcd;  // URLs of members; empty: the state is in memory only
  std::string etcd_prefix = "/sluice/lending";
};

// Declares the command. Returns it.
CLI::App* add_coordinator(CLI::App& root, CoordinatorArguments& arguments);

// Returns the exit code.
int run_coordinator(const CoordinatorArguments& arguments);

}  // namespace sluice
