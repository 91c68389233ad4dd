#include "apps/gateway_agents.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "apps/option_values.h"
#include "base/log.h"
#include "function/frames.h"

namespace sluice {
namespace {

// Ticks of the hub in one expiry.
constexpr int kTicks = 20;
constexpr std::int32_t kMaxConnections = 2048;
// A message of outputs: a frame at its limit, or several small ones.
constexpr std::size_t kMaxBody = kMaxFrameBytes + (std::size_t{1} << 20);

Status check(const AgentsArguments& arguments) {
  if (arguments.token_file.empty()) {
    return invalid_argument("--agents needs --agents-token-file, the token of all agents");
  }
  const int given = (arguments.ssl_certfile.empty() ? 0 : 1) +
                    (arguments.ssl_keyfile.empty() ? 0 : 1) +
                    (arguments.ssl_cafile.empty() ? 0 : 1);
  if (given == 0 || given == 3) return {};
  return invalid_argument(
      "--agents-ssl-certfile, --agents-ssl-keyfile and --agents-ssl-cafile go together");
}

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

// "127.0.0.1:8001", "[::1]:8001"
Result<Address> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return invalid_argument(
        fmt::format("--agents must be HOST:PORT, such as 10.0.0.1:8001, got '{}'", text));
  }
  Address address;
  address.host = text.substr(0, colon);
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  ASSIGN_OR_RETURN(const std::int64_t port,
                   parse_integer("the port of --agents", text.substr(colon + 1), 0, 65535));
  address.port = static_cast<std::uint16_t>(port);
  return address;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<std::unique_ptr<GatewayAgents>> GatewayAgents::open(const AgentsArguments& arguments,
                                                           const AgentHub::Options& options,
                                                           http::EventLoop& loop,
                                                           const Clock& clock,
                                                           std::function<void()> changed) {
  if (arguments.listen.empty()) {
    if (arguments.token_file.empty() && arguments.ssl_certfile.empty() &&
        arguments.ssl_keyfile.empty() && arguments.ssl_cafile.empty()) {
      return std::unique_ptr<GatewayAgents>();
    }
    return invalid_argument("the options of agents need --agents HOST:PORT");
  }
  RETURN_IF_ERROR(check(arguments));
  const bool tls = !arguments.ssl_certfile.empty();
  ASSIGN_OR_RETURN(const Address address, parse_address(arguments.listen));
  if (!tls && !is_loopback(address.host)) {
    return invalid_argument(fmt::format(
        "--agents {}: other machines may reach this address, so it needs --agents-ssl-certfile, "
        "--agents-ssl-keyfile and --agents-ssl-cafile",
        arguments.listen));
  }
  ASSIGN_OR_RETURN(BearerToken token, BearerToken::load(arguments.token_file));
  std::unique_ptr<GatewayAgents> agents(new GatewayAgents(loop));
  if (tls) {
    ASSIGN_OR_RETURN(agents->tls_,
                     http::TlsContext::of_party_server(
                         {arguments.ssl_certfile, arguments.ssl_keyfile, arguments.ssl_cafile}));
  }
  agents->pause_ = options.expiry / kTicks;
  agents->hub_ = std::make_unique<AgentHub>(
      options, std::move(token), clock, std::move(changed),
      [self = agents.get()](std::function<void()> work, std::function<void()> done) {
        self->jobs_.add([self, work = std::move(work), done = std::move(done)] {
          work();
          self->loop_.post(done);
        });
      });
  http::HttpLimits limits;
  limits.max_connections = kMaxConnections;
  limits.body_bytes = kMaxBody;
  limits.write_timeout = options.expiry;
  auto server = http::HttpServer::listen(loop, address.host, address.port, limits, *agents->hub_,
                                         clock, agents->tls_.get());
  if (!server) return with_context("--agents", std::move(server).error());
  agents->server_ = *std::move(server);
  const bool is_v6 = address.host.find(':') != std::string::npos;
  agents->url_ =
      fmt::format("{}://{}:{}", tls ? "https" : "http",
                  is_v6 ? "[" + address.host + "]" : address.host, agents->server_->port());
  return agents;
}

void GatewayAgents::start() { tick(); }

void GatewayAgents::tick() {
  hub_->tick();
  loop_.after(pause_, [this] { tick(); });
}

MachineCapacity GatewayAgents::with_agents(MachineCapacity capacity) const {
  for (const AgentView& agent : hub_->agents()) {
    capacity.cores += static_cast<std::int32_t>(agent.cores);
    capacity.bytes[static_cast<std::size_t>(MemoryKind::kHost)] += agent.memory_bytes;
  }
  return capacity;
}

void GatewayAgents::reload() {
  if (tls_ == nullptr) return;
  if (const auto read = tls_->reload(); !read) log_error(read.error().message);
}

void GatewayAgents::stop() {
  hub_->stop();
  jobs_.stop();
  server_->close_all();
}

}  // namespace sluice
