// The agents of `sluice gateway --agents HOST:PORT`: their options, their port and their hub.
// Owner: the command. Threads: the event loop's, before or while it runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/agent_hub.h"
#include "base/clock.h"
#include "base/job_thread.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "http/tls.h"
#include "serverless/usage_meter.h"

namespace sluice {

// As given; empty = not given.
struct AgentsArguments {
  std::string listen;  // HOST:PORT
  std::string token_file;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::string ssl_cafile;
  double expiry_s = 5;
};

// Whether only this machine can reach the host.
bool is_loopback(const std::string& host);

class GatewayAgents {
 public:
  // Listens; agents are told to wait until set_backbones(). Null without --agents. Errors name the
  // option. `changed`: as of AgentHub. REQUIRES: loop and clock outlive it.
  static Result<std::unique_ptr<GatewayAgents>> open(const AgentsArguments& arguments,
                                                     const AgentHub::Options& options,
                                                     http::EventLoop& loop, const Clock& clock,
                                                     std::function<void()> changed);

  AgentHub& hub() { return *hub_; }
  const std::string& url() const { return url_; }
  // Starts the hub's ticks.
  void start();
  // The machine with all agents.
  MachineCapacity with_agents(MachineCapacity capacity) const;
  // Reads the certificate again.
  void reload();
  // Closes all connections.
  void stop();

 private:
  explicit GatewayAgents(http::EventLoop& loop) : loop_(loop) {}
  void tick();

  http::EventLoop& loop_;
  Duration pause_{0};
  std::string url_;
  std::unique_ptr<http::TlsContext> tls_;  // null: none
  std::unique_ptr<AgentHub> hub_;
  std::unique_ptr<http::HttpServer> server_;
  JobThread jobs_;  // last: it ends before what it uses; copies adapters
};

}  // namespace sluice
