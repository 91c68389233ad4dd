// Socket, Listener and Connector: non-blocking TCP and Unix-domain sockets on the event loop, with
// TLS if the listener says so: receive() and send() then carry what is inside. A waiting socket
// holds no buffer, so an idle connection costs little. Only the .cpp files of this header and of
// the loop use Asio's sockets. Owner: a Socket belongs to its connection, a Listener to the server,
// a Connector to the client. The loop outlives all three. Threads: the event loop's. No callback
// runs inside a call or after close().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "http/io_result.h"
#include "http/tls.h"

namespace sluice::http {

class SocketEvents {
 public:
  virtual ~SocketEvents() = default;
  virtual void on_readable() = 0;  // bytes, the end, or an error: receive() returns which
  virtual void on_writable() = 0;
  virtual void on_deadline() = 0;
  virtual void on_wake() = 0;
};

class Socket {
 public:
  struct Impl;
  // Shared with the waits that are pending in the loop: they may end after the socket's owner.
  explicit Socket(std::shared_ptr<Impl> impl);
  ~Socket();  // closes
  Socket(Socket&&) noexcept;
  Socket& operator=(Socket&&) = delete;

  // The receiver of events; it outlives the socket or closes it.
  void set_events(SocketEvents& events);

  // Each request causes one event; a further request while one is pending does nothing.
  void await_readable();
  void await_writable();
  // Calls on_deadline() once, `delay` from now. Replaces an earlier deadline, which is cheap.
  void set_deadline(Duration delay);
  void clear_deadline();
  // Calls on_wake() soon, from the loop.
  void wake();

  // The local address of the connection without its port, "127.0.0.1" or "::1"; empty if it is
  // closed and for a Unix-domain socket.
  std::string local_address() const;

  IoResult receive(std::span<char> into);
  IoResult send(std::string_view bytes);
  // Why TLS closed the connection; empty if it did not.
  std::string tls_failure() const;
  // Ends the sending direction: the peer reads the sent bytes and then the end.
  void shutdown_send();
  void close();
  // Closes and discards unsent bytes.
  void reset();

 private:
  // Shared with pending waits, see the constructor.
  std::shared_ptr<Impl> impl_;
};

class Listener {
 public:
  struct Options {
    // Bytes that the system buffers for a slow reader; further bytes count as unsent.
    std::int32_t send_buffer_bytes = 128 << 10;
    // A peer that acknowledges nothing for this long is considered gone.
    Duration user_timeout = std::chrono::seconds(60);
    // Encrypts the connections; null: they are plain. REQUIRES: it outlives them.
    TlsContext* tls = nullptr;
  };
  // Receives each new connection and its peer's address, "127.0.0.1:51234" or "[::1]:51234".
  using Accept = std::function<void(Socket, std::string)>;

  // Listens on every address of `host`. Errors name host, port and cause.
  static Result<std::unique_ptr<Listener>> open(EventLoop& loop, const std::string& host,
                                                std::uint16_t port, const Options& options,
                                                Accept accept);
  // Listens on a Unix-domain socket. Only this user may connect to it (mode 0600); every peer is
  // named "unix". A socket that a dead process left at `path` is replaced. close() removes the
  // file. Errors name path and cause.
  static Result<std::unique_ptr<Listener>> open_unix(EventLoop& loop, const std::string& path,
                                                     const Options& options, Accept accept);
  ~Listener();  // closes
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const;  // 0 of a Unix-domain socket
  // Leaves new connections in the system's queue until resume(). One whose acceptance has begun is
  // still delivered.
  void pause();
  void resume();
  // Accepts no more connections. A second call does nothing.
  void close();

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Connector {
 public:
  struct Impl;
  // Called once from the loop, never from inside connect() and not after the connector's end.
  // Errors name host and port, or the path, and the cause; kDeadlineExceeded when time ran out.
  using Done = std::function<void(Result<Socket>)>;

  // Looks up the addresses of `host`, which may take the resolver's time; errors name it.
  // `tls`, of a client, encrypts the connections; null: they are plain. REQUIRES: it outlives them.
  static Result<std::unique_ptr<Connector>> open(EventLoop& loop, const std::string& host,
                                                 std::uint16_t port, TlsContext* tls = nullptr);
  // To a Unix-domain socket. Errors name the path.
  static Result<std::unique_ptr<Connector>> open_unix(EventLoop& loop, const std::string& path);
  ~Connector();  // abandons pending attempts
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Tries one address after another, each for at most `timeout`.
  void connect(Duration timeout, Done done);

 private:
  // Shared with the attempts that are pending in the loop: they may end after the connector.
  explicit Connector(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // see the constructor
};

}  // namespace sluice::http
