// HttpServer: HTTP/1.1 (and 1.0) on TCP or a Unix-domain socket: keep-alive, pipelining (answered
// in order, one at a time), chunked and Content-Length bodies, Expect: 100-continue, and timeouts
// and limits for everything that a client can delay or grow. It knows nothing of the application.
// Owner: the command. Threads: the event loop's; listen() before the loop runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "http/exchange.h"
#include "http/message.h"
#include "http/tls.h"

namespace sluice::http {

struct HttpLimits {
  // A further one takes the place of the one that has been idle for the longest time. If none is
  // idle, it is answered 503 and closed.
  std::int32_t max_connections = 4096;
  std::size_t header_bytes = 16 << 10;       // request line and headers: 431
  std::size_t body_bytes = 8 << 20;          // one body: 413
  std::size_t total_body_bytes = 256 << 20;  // all bodies that are not dropped yet: 503
  std::size_t fair_body_bytes = 64 << 10;    // a body up to this is read regardless
  // Unsent bytes of all connections together. Beyond that total, the server closes any connection
  // with more than Connection::kFairUnsent unsent.
  std::size_t total_unsent_bytes = 256 << 20;
  // Each starts when the server begins to wait for that part.
  Duration header_timeout = std::chrono::seconds(10);  // first byte to end of headers: 408
  Duration body_timeout = std::chrono::seconds(60);    // end of headers to end of body: 408
  Duration idle_timeout = std::chrono::seconds(75);    // between requests, and before the first
  Duration write_timeout =
      std::chrono::seconds(30);  // the client takes no byte although bytes are unsent
};

// The application. Called on the event loop's thread; must not block.
class Handler {
 public:
  virtual ~Handler() = default;
  // Sees method, path, query and headers before the body is read (`head.body` is empty). A response
  // refuses the request at once: unknown path, no key, not accepting. std::nullopt: read the body.
  virtual std::optional<Response> admit(const Request& head) = 0;
  // Shared with the connection: see exchange.h.
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The answer, in the API's own shape, to a request that the server itself refuses with `status`
  // (400, 408, 413, 415, 417, 431, 500, 501, 503). `head` has the part of the request that was
  // read, and always its peer.
  virtual Response refusal(const Request& head, int status, std::string message) = 0;
};

struct HttpServerStats {
  std::int32_t open_connections = 0;
  std::int64_t accepted = 0;
  std::int64_t refused = 0;      // over max_connections
  std::int64_t closed_idle = 0;  // to make room for others
  // Pipelined bytes of all connections: read and not parsed.
  std::size_t waiting_bytes = 0;
};

class HttpServer {
 public:
  // Binds and listens; connections are accepted once the loop runs. Port 0: any free port. Errors
  // name host and port and the cause (in use, no permission, no such address). `tls`: encrypts
  // (https); it outlives the server.
  // REQUIRES: loop, handler and clock outlive the server.
  static Result<std::unique_ptr<HttpServer>> listen(EventLoop& loop, const std::string& host,
                                                    std::uint16_t port, const HttpLimits& limits,
                                                    Handler& handler, const Clock& clock,
                                                    TlsContext* tls = nullptr);
  // The same on a Unix-domain socket (Listener::open_unix()). Errors name path and cause.
  static Result<std::unique_ptr<HttpServer>> listen_unix(EventLoop& loop, const std::string& path,
                                                         const HttpLimits& limits, Handler& handler,
                                                         const Clock& clock);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;  // 0 on a Unix-domain socket
  // Drains: accepts no more connections, closes idle connections, and closes every other connection
  // after its current response (Connection: close).
  void drain();
  // Closes all connections at once (CloseReason::kServerStop).
  void close_all();
  HttpServerStats stats() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::http
