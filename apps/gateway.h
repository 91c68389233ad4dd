// `sluice gateway --config functions.toml`: one OpenAI endpoint for all functions of a file. Each
// function has a sandboxed process while it is called. SIGTERM and SIGINT drain it, as `serve`;
// SIGHUP reads the file again. Agents on other machines may run functions for it, too.
// Threads: the event loop runs on the caller's.
#pragma once

#include <string>

#include "apps/gateway_agents.h"
#include "apps/gateway_member.h"
#include "apps/serve.h"

namespace sluice {

struct GatewayArguments {
  std::string functions;  // the functions file
  std::string prices;     // a price list; empty: the default one
  std::string usage;      // a file; empty: one in the user's state folder
  AgentsArguments agents;
  GroupArguments group;  // of gateways that share etcd
  // The options that the command has in common with `serve`; serve.isolation is always "process".
  ServeArguments serve;
};

// Returns the exit code.
int run_gateway(const GatewayArguments& arguments);

}  // namespace sluice
