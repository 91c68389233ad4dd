#include "http/socket.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "http/event_loop_impl.h"
#include "http/unix_path.h"

namespace sluice::http {
namespace {

using boost::asio::ip::tcp;
using Local = boost::asio::local::stream_protocol;
using Stream = boost::asio::generic::stream_protocol;  // either of the two
using SystemError = boost::system::error_code;
using UserTimeout = boost::asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>;
using KeepIdle = boost::asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
using KeepInterval = boost::asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
using KeepCount = boost::asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;

// How long accepting pauses when the process may open no more files.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// An IPv4 client of a dual-stack socket is shown as 127.0.0.1:51234, not as
// [::ffff:127.0.0.1]:51234.
boost::asio::ip::address plain_address(const tcp::endpoint& endpoint) {
  boost::asio::ip::address address = endpoint.address();
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
}

std::string address_text(const tcp::endpoint& endpoint) {
  const boost::asio::ip::address address = plain_address(endpoint);
  return address.is_v6() ? fmt::format("[{}]:{}", address.to_string(), endpoint.port())
                         : fmt::format("{}:{}", address.to_string(), endpoint.port());
}

std::string address_text(const Local::endpoint&) { return "unix"; }

IoResult io_result(std::size_t bytes, const SystemError& error) {
  if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) {
    return {IoState::kWouldBlock, 0};
  }
  if (error || bytes == 0) return {IoState::kClosed, 0};
  return {IoState::kDone, bytes};
}

}  // namespace

// ---------------------------------------------------------------- Socket

// Pending waits keep it alive.
struct Socket::Impl : std::enable_shared_from_this<Socket::Impl> {
  using Instant = std::chrono::steady_clock::time_point;

  explicit Impl(Stream::socket connected)
      : socket(std::move(connected)), timer(socket.get_executor()) {}

  void arm_timer() {
    timer_at = *deadline;
    timer.expires_at(timer_at);
    timer_armed = true;
    timer.async_wait([self = shared_from_this()](const SystemError& error) {
      if (error) return;  // moved to an earlier time, or closed
      self->timer_armed = false;
      if (self->events == nullptr || !self->deadline) return;
      if (std::chrono::steady_clock::now() < *self->deadline) return self->arm_timer();
      self->deadline.reset();
      self->events->on_deadline();
    });
  }

  void close() {
    events = nullptr;
    deadline.reset();
    if (tls) tls->end();
    tls.reset();
    SystemError ignored;
    timer.cancel(ignored);
    socket.close(ignored);
  }

  Stream::socket socket;
  std::optional<TlsSession> tls;
  boost::asio::steady_timer timer;
  SocketEvents* events = nullptr;
  // The timer may be due before the deadline, never after it: most deadlines are moved later or
  // cleared long before, and then the timer need not be touched.
  std::optional<Instant> deadline;
  Instant timer_at;
  bool timer_armed = false;
  bool reading = false;
  bool writing = false;
};

// Shared, see the header.
Socket::Socket(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Socket::Socket(Socket&&) noexcept = default;
Socket::~Socket() {
  if (impl_ != nullptr) close();
}

void Socket::set_events(SocketEvents& events) { impl_->events = &events; }

void Socket::await_readable() {
  if (std::exchange(impl_->reading, true)) return;
  const auto arrived = [impl = impl_](const SystemError&) {
    impl->reading = false;
    if (impl->events != nullptr) impl->events->on_readable();
  };
  if (impl_->tls && impl_->tls->has_received()) {
    boost::asio::post(impl_->socket.get_executor(), [arrived] { arrived({}); });
    return;
  }
  const bool room = impl_->tls && impl_->tls->receive_awaits_room();
  impl_->socket.async_wait(room ? Stream::socket::wait_write : Stream::socket::wait_read, arrived);
}

void Socket::await_writable() {
  if (std::exchange(impl_->writing, true)) return;
  const bool bytes = impl_->tls && impl_->tls->send_awaits_bytes();
  impl_->socket.async_wait(bytes ? Stream::socket::wait_read : Stream::socket::wait_write,
                           [impl = impl_](const SystemError&) {
                             impl->writing = false;
                             if (impl->events != nullptr) impl->events->on_writable();
                           });
}

void Socket::set_deadline(Duration delay) {
  impl_->deadline = std::chrono::steady_clock::now() + delay;
  if (!impl_->timer_armed || *impl_->deadline < impl_->timer_at) impl_->arm_timer();
}

void Socket::clear_deadline() { impl_->deadline.reset(); }

void Socket::wake() {
  boost::asio::post(impl_->socket.get_executor(), [impl = impl_] {
    if (impl->events != nullptr) impl->events->on_wake();
  });
}

std::string Socket::local_address() const {
  SystemError error;
  const Stream::endpoint endpoint = impl_->socket.local_endpoint(error);
  if (error || endpoint.protocol().family() == AF_UNIX) return {};
  tcp::endpoint address;
  CHECK(endpoint.size() <= address.capacity());
  std::memcpy(address.data(), endpoint.data(), endpoint.size());
  return plain_address(address).to_string();
}

IoResult Socket::receive(std::span<char> into) {
  if (impl_->tls) return impl_->tls->receive(into);
  SystemError error;
  const std::size_t bytes =
      impl_->socket.read_some(boost::asio::buffer(into.data(), into.size()), error);
  return io_result(bytes, error);
}

IoResult Socket::send(std::string_view bytes) {
  CHECK(!bytes.empty());
  if (impl_->tls) return impl_->tls->send(bytes);
  SystemError error;
  const std::size_t sent =
      impl_->socket.write_some(boost::asio::buffer(bytes.data(), bytes.size()), error);
  return io_result(sent, error);
}

std::string Socket::tls_failure() const {
  return impl_->tls ? impl_->tls->failure() : std::string();
}

void Socket::shutdown_send() {
  if (impl_->tls) impl_->tls->end();
  SystemError ignored;
  impl_->socket.shutdown(Stream::socket::shutdown_send, ignored);
}

void Socket::close() { impl_->close(); }

void Socket::reset() {
  SystemError ignored;
  impl_->tls.reset();  // without an end, so that the peer sees a cut
  impl_->socket.set_option(Stream::socket::linger(true, 0), ignored);
  impl_->close();
}

// ---------------------------------------------------------------- Listener

namespace {

// An address that is listened on. Pending accepts keep it alive.
class Listening {
 public:
  virtual ~Listening() = default;
  virtual void start() = 0;
  virtual void hold() = 0;
  virtual void release() = 0;
  virtual void close() = 0;
};

template <class Protocol>
class Acceptor final : public Listening, public std::enable_shared_from_this<Acceptor<Protocol>> {
 public:
  // Shared by the listener's addresses.
  Acceptor(boost::asio::io_context& context, std::shared_ptr<Listener::Accept> accept,
           TlsContext* tls)
      : acceptor_(context), pause_(context), accept_(std::move(accept)), tls_(tls) {}

  // To be opened before start().
  typename Protocol::acceptor& socket() { return acceptor_; }

  void start() override {
    if (held_ || std::exchange(accepting_, true)) return;
    acceptor_.async_accept([self = this->shared_from_this()](const SystemError& error,
                                                             typename Protocol::socket socket) {
      self->accepting_ = false;
      if (!self->acceptor_.is_open()) return;
      if (error) return self->pause(error);
      self->complained_ = false;
      self->take(std::move(socket));
      self->start();
    });
  }

  void hold() override { held_ = true; }
  void release() override {
    held_ = false;
    if (acceptor_.is_open()) start();
  }

  void close() override {
    SystemError ignored;
    acceptor_.close(ignored);
    pause_.cancel(ignored);
  }

 private:
  void take(typename Protocol::socket socket) {
    SystemError error;
    const auto peer = socket.remote_endpoint(error);
    if (!error) socket.non_blocking(true, error);
    if (error) return;  // already gone
    // Shared with the socket's pending waits.
    auto impl = std::make_shared<Socket::Impl>(std::move(socket));
    if (tls_ != nullptr) impl->tls.emplace(*tls_, impl->socket.native_handle());
    (*accept_)(Socket(std::move(impl)), address_text(peer));
  }

  // Typically no more files may be opened: the connection stays in the system's queue.
  void pause(const SystemError& error) {
    if (!std::exchange(complained_, true)) {
      log_warning(fmt::format("cannot accept connections: {}; trying again", error.message()));
    }
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = this->shared_from_this()](const SystemError& canceled) {
      if (!canceled && self->acceptor_.is_open()) self->start();
    });
  }

  typename Protocol::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::shared_ptr<Listener::Accept> accept_;  // shared by the listener's addresses
  TlsContext* const tls_;                     // null: plain
  bool complained_ = false;
  bool accepting_ = false;
  bool held_ = false;
};

SystemError open_tcp(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, bool v6_only,
                     const Listener::Options& options) {
  SystemError error;
  const auto set = [&](const auto& option) {
    if (!error) acceptor.set_option(option, error);
  };
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.user_timeout).count();
  acceptor.open(endpoint.protocol(), error);
  // Connections inherit these, so that accepting one takes a single call.
  set(tcp::acceptor::reuse_address(true));
  set(tcp::no_delay(true));
  set(boost::asio::socket_base::send_buffer_size(options.send_buffer_bytes));
  set(boost::asio::socket_base::keep_alive(true));
  set(KeepIdle(30));
  set(KeepInterval(10));
  set(KeepCount(3));
  set(UserTimeout(static_cast<int>(milliseconds)));
  if (endpoint.address().is_v6()) set(boost::asio::ip::v6_only(v6_only));
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  return error;
}

SystemError open_local(Local::acceptor& acceptor, const std::string& path,
                       const Listener::Options& options) {
  SystemError error;
  const Local::endpoint endpoint(path);
  acceptor.open(endpoint.protocol(), error);
  if (!error) {
    acceptor.set_option(boost::asio::socket_base::send_buffer_size(options.send_buffer_bytes),
                        error);
  }
  if (!error) error = restrict_to_user(acceptor.native_handle());
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  return error;
}

Error listen_error(const std::string& host, std::uint16_t port, const std::string& cause) {
  return unavailable(fmt::format("cannot listen on {} port {}: {}", host, port, cause));
}

}  // namespace

struct Listener::Impl {
  std::vector<std::shared_ptr<Listening>> addresses;  // shared with their pending accepts
  std::uint16_t port = 0;
  std::optional<SocketFile> file;  // of a Unix-domain socket
};

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() { close(); }

Result<std::unique_ptr<Listener>> Listener::open(EventLoop& loop, const std::string& host,
                                                 std::uint16_t port, const Options& options,
                                                 Accept accept) {
  if (host.empty()) return invalid_argument("the host to listen on is empty; try 127.0.0.1");
  if (host.front() == '[') {
    return invalid_argument(
        fmt::format("cannot listen on {}: write IPv6 addresses without brackets", host));
  }
  boost::asio::io_context& context = *loop.impl().context;
  SystemError error;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) return listen_error(host, port, error.message());
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) {
    if (std::find(endpoints.begin(), endpoints.end(), entry.endpoint()) == endpoints.end()) {
      endpoints.push_back(entry.endpoint());
    }
  }
  auto impl = std::make_unique<Impl>();
  // Shared by the addresses.
  const auto shared_accept = std::make_shared<Accept>(std::move(accept));
  std::optional<SystemError> failure;
  for (tcp::endpoint endpoint : endpoints) {
    // With port 0 the first address finds a port for all.
    if (port == 0 && !impl->addresses.empty()) endpoint.port(impl->port);
    // Shared with pending accepts.
    const auto acceptor = std::make_shared<Acceptor<tcp>>(context, shared_accept, options.tls);
    error = open_tcp(acceptor->socket(), endpoint, endpoints.size() > 1, options);
    // A name may have addresses that this machine lacks, typically of IPv6; these are skipped. An
    // address that is in use or forbidden is an error.
    const bool lacking =
        error == boost::asio::error::address_family_not_supported || error.value() == EADDRNOTAVAIL;
    if (error && !(lacking && endpoints.size() > 1)) {
      return listen_error(host, port, error.message());
    }
    if (error) {
      failure = error;
      continue;
    }
    if (impl->addresses.empty()) impl->port = acceptor->socket().local_endpoint(error).port();
    impl->addresses.push_back(acceptor);
  }
  if (impl->addresses.empty()) {
    return listen_error(host, port, failure ? failure->message() : "it has no address");
  }
  for (const auto& address : impl->addresses) address->start();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Result<std::unique_ptr<Listener>> Listener::open_unix(EventLoop& loop, const std::string& path,
                                                      const Options& options, Accept accept) {
  RETURN_IF_ERROR(check_socket_path(path));
  RETURN_IF_ERROR(remove_stale_socket(path));
  boost::asio::io_context& context = *loop.impl().context;
  // Shared with pending accepts, as the acceptor is.
  const auto shared_accept = std::make_shared<Accept>(std::move(accept));
  using LocalAcceptor = Acceptor<Local>;
  // Shared with its pending accepts.
  const auto acceptor = std::make_shared<LocalAcceptor>(context, shared_accept, options.tls);
  if (const SystemError error = open_local(acceptor->socket(), path, options)) {
    return unavailable(fmt::format("cannot listen on unix:{}: {}", path, error.message()));
  }
  auto impl = std::make_unique<Impl>();
  impl->addresses.push_back(acceptor);
  impl->file.emplace(path);
  acceptor->start();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

std::uint16_t Listener::port() const { return impl_->port; }

void Listener::pause() {
  for (const auto& address : impl_->addresses) address->hold();
}

void Listener::resume() {
  for (const auto& address : impl_->addresses) address->release();
}

void Listener::close() {
  for (const auto& address : impl_->addresses) address->close();
  impl_->file.reset();
}

// ---------------------------------------------------------------- Connector

struct Connector::Impl {
  boost::asio::io_context* context = nullptr;
  std::string name;  // for messages
  std::string host;  // for TLS
  TlsContext* tls = nullptr;
  std::vector<Stream::endpoint> addresses;
  bool closed = false;
};

namespace {

// One connect(): tries the addresses in turn. Pending waits keep it alive.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  // Shared, because an attempt may outlive its connector.
  Attempt(std::shared_ptr<Connector::Impl> target, Duration timeout, Connector::Done done)
      : target_(std::move(target)),
        timeout_(timeout),
        done_(std::move(done)),
        socket_(*target_->context),
        timer_(*target_->context) {}

  void start() {
    timed_out_ = false;
    timer_.expires_after(timeout_);
    timer_.async_wait([self = shared_from_this(), turn = next_](const SystemError& error) {
      if (error || turn != self->next_) return;
      self->timed_out_ = true;
      SystemError ignored;
      self->socket_.close(ignored);
    });
    socket_.async_connect(
        target_->addresses[next_],
        [self = shared_from_this()](const SystemError& error) { self->ended(error); });
  }

 private:
  void ended(SystemError error) {
    SystemError ignored;
    timer_.cancel(ignored);
    const bool local = target_->addresses[next_++].protocol().family() == AF_UNIX;
    if (target_->closed) return;
    if (!error && timed_out_) error = boost::asio::error::timed_out;
    if (!error && !local) socket_.set_option(tcp::no_delay(true), error);
    if (!error) socket_.non_blocking(true, error);
    if (!error) {
      // Shared with the socket's pending waits.
      auto impl = std::make_shared<Socket::Impl>(std::move(socket_));
      if (target_->tls != nullptr) {
        impl->tls.emplace(*target_->tls, impl->socket.native_handle(), target_->host);
      }
      return done_(Socket(std::move(impl)));
    }
    socket_.close(ignored);
    if (next_ < target_->addresses.size()) return start();
    const ErrorCode code = timed_out_ ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable;
    done_(Error{code, fmt::format("cannot connect to {}: {}", target_->name,
                                  timed_out_ ? "no answer in time" : error.message())});
  }

  std::shared_ptr<Connector::Impl> target_;  // see the constructor
  Duration timeout_;
  Connector::Done done_;
  Stream::socket socket_;
  boost::asio::steady_timer timer_;
  std::size_t next_ = 0;
  bool timed_out_ = false;
};

}  // namespace

// Shared, see the header.
Connector::Connector(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connector::~Connector() { impl_->closed = true; }

Result<std::unique_ptr<Connector>> Connector::open(EventLoop& loop, const std::string& host,
                                                   std::uint16_t port, TlsContext* tls) {
  // Shared with pending attempts.
  auto impl = std::make_shared<Impl>();
  impl->context = loop.impl().context.get();
  impl->host = host;
  impl->tls = tls;
  impl->name = fmt::format("{} port {}", host, port);
  SystemError error;
  tcp::resolver resolver(*impl->context);
  const auto found =
      resolver.resolve(host, std::to_string(port), tcp::resolver::numeric_service, error);
  if (error) {
    return unavailable(fmt::format("the host '{}' is not known: {}", host, error.message()));
  }
  for (const auto& entry : found) {
    auto& known = impl->addresses;
    const Stream::endpoint address(entry.endpoint());
    if (std::find(known.begin(), known.end(), address) == known.end()) known.push_back(address);
  }
  return std::unique_ptr<Connector>(new Connector(std::move(impl)));
}

Result<std::unique_ptr<Connector>> Connector::open_unix(EventLoop& loop, const std::string& path) {
  RETURN_IF_ERROR(check_socket_path(path));
  // Shared with pending attempts.
  auto impl = std::make_shared<Impl>();
  impl->context = loop.impl().context.get();
  impl->name = "unix:" + path;
  impl->addresses.push_back(Local::endpoint(path));
  return std::unique_ptr<Connector>(new Connector(std::move(impl)));
}

void Connector::connect(Duration timeout, Done done) {
  // Shared with its own pending waits.
  std::make_shared<Attempt>(impl_, timeout, std::move(done))->start();
}

}  // namespace sluice::http
