#include "http/http_server.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "http/connection.h"
#include "http/socket.h"

namespace sluice::http {
namespace {

constexpr std::size_t kReadAtOnce = 64 << 10;
// Connections over the limit that are answered 503 at the same time. Each lasts kLingerTime at
// most. Further ones wait in the system's queue.
constexpr std::size_t kMaxTurnedAway = 256;

using Connections = std::unordered_map<Connection*, std::unique_ptr<Connection>>;

}  // namespace

struct HttpServer::Impl {
  Impl(EventLoop& loop, const HttpLimits& limits, Handler& handler, const Clock& clock)
      : state(loop, limits, handler, clock) {
    state.scratch.resize(kReadAtOnce);
    state.retire = [this](Connection& connection) { retire(connection); };
  }

  ~Impl() { close_all(); }

  Listener::Options listener_options() const {
    Listener::Options options;
    // Later than the write timeout, which can report the reason.
    options.user_timeout = 2 * state.limits.write_timeout + std::chrono::seconds(1);
    return options;
  }

  Listener::Accept accept_function() {
    return [this](Socket socket, std::string peer) { accept(std::move(socket), std::move(peer)); };
  }

  void accept(Socket socket, std::string peer) {
    ++accepted;
    const auto most = static_cast<std::size_t>(state.limits.max_connections);
    if (connections.size() >= most && !state.idle.empty()) {
      ++closed_idle;
      state.idle.front()->close(CloseReason::kServerStop);
    }
    const bool full = connections.size() >= most;
    if (full) ++refused;
    auto made = std::make_unique<Connection>(state, std::move(socket), std::move(peer));
    Connection& connection = *made;
    (full ? turned_away : connections).emplace(&connection, std::move(made));
    if (full) {
      connection.reject();
      if (turned_away.size() >= kMaxTurnedAway) listener->pause();
    } else {
      connection.start();
    }
  }

  // One of the connection's own functions is running, so it is destroyed from the loop.
  void retire(Connection& connection) {
    auto node = connections.extract(&connection);
    if (node.empty()) node = turned_away.extract(&connection);
    // Shared because tasks must be copyable.
    std::shared_ptr<Connection> closed = std::move(node.mapped());
    state.loop.post([closed = std::move(closed)] {});
    if (listener != nullptr && turned_away.size() < kMaxTurnedAway) listener->resume();
  }

  std::vector<Connection*> all() const {
    std::vector<Connection*> found;
    for (const auto& [connection, owner] : connections) found.push_back(connection);
    for (const auto& [connection, owner] : turned_away) found.push_back(connection);
    return found;
  }

  void drain() {
    state.draining = true;
    if (listener != nullptr) listener->close();
    for (Connection* connection : all()) {
      if (connection->idle()) connection->close(CloseReason::kServerStop);
    }
  }

  void close_all() {
    if (listener != nullptr) listener->close();
    // Closing one connection cannot close another, because the handler is called later, from the
    // loop.
    for (Connection* connection : all()) connection->close(CloseReason::kServerStop);
  }

  ServerState state;
  std::unique_ptr<Listener> listener;
  Connections connections;
  Connections turned_away;
  std::int64_t accepted = 0;
  std::int64_t refused = 0;
  std::int64_t closed_idle = 0;
  std::uint16_t port = 0;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::listen(EventLoop& loop, const std::string& host,
                                                       std::uint16_t port, const HttpLimits& limits,
                                                       Handler& handler, const Clock& clock,
                                                       TlsContext* tls) {
  auto impl = std::make_unique<Impl>(loop, limits, handler, clock);
  Listener::Options options = impl->listener_options();
  options.tls = tls;
  ASSIGN_OR_RETURN(impl->listener,
                   Listener::open(loop, host, port, options, impl->accept_function()));
  impl->port = impl->listener->port();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen_unix(EventLoop& loop,
                                                            const std::string& path,
                                                            const HttpLimits& limits,
                                                            Handler& handler, const Clock& clock) {
  auto impl = std::make_unique<Impl>(loop, limits, handler, clock);
  ASSIGN_OR_RETURN(impl->listener, Listener::open_unix(loop, path, impl->listener_options(),
                                                       impl->accept_function()));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::uint16_t HttpServer::port() const { return impl_->port; }
void HttpServer::drain() { impl_->drain(); }
void HttpServer::close_all() { impl_->close_all(); }

HttpServerStats HttpServer::stats() const {
  HttpServerStats stats;
  stats.open_connections = static_cast<std::int32_t>(impl_->connections.size());
  stats.accepted = impl_->accepted;
  stats.refused = impl_->refused;
  stats.closed_idle = impl_->closed_idle;
  for (const auto& [connection, owner] : impl_->connections) {
    stats.waiting_bytes += connection->waiting_bytes();
  }
  return stats;
}

}  // namespace sluice::http
