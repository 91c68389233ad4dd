// `sluice agent --join URL`: runs functions for a gateway on another machine
// (docs/gateway-machines.md).
// SIGTERM and SIGINT drain it: running calls end first.
// Threads: the event loop runs on the caller's.
#pragma once

#include <string>
#include <vector>

#include "apps/serve.h"

namespace sluice {

struct AgentArguments {
  std::string join;  // the gateway's address for agents
  std::string token_file;
  std::string name;                    // empty: the host's
  std::vector<std::string> backbones;  // NAME=DIRECTORY
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::string ssl_cafile;
  // The options that the command has in common with `gateway`; serve.isolation is always "process".
  ServeArguments serve;
};

// Returns the exit code.
int run_agent(const AgentArguments& arguments);

}  // namespace sluice
