#include "http/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "http/socket.h"

namespace sluice::http {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;

// One request and its state.
struct Call {
  ResponseSink* sink = nullptr;
  std::string bytes;
  bool repeated = false;
};

class ClientConnection;

// The calls that connections make to the client.
class Pool {
 public:
  virtual ~Pool() = default;
  virtual void keep(ClientConnection& connection) = 0;  // the connection may carry another call
  virtual void drop(ClientConnection& connection) = 0;  // the connection is closed; deleted later
  virtual void repeat(Call call) = 0;
  virtual std::span<char> scratch() = 0;
  virtual const std::string& name() const = 0;  // of the server, for messages
  virtual Duration silence_timeout() const = 0;
  virtual std::string silence() const = 0;  // the error of one that was too long
};

class ClientConnection final : private SocketEvents {
 public:
  ClientConnection(Pool& pool, Socket socket) : pool_(pool), socket_(std::move(socket)) {
    socket_.set_events(*this);
  }

  void run(Call call) {
    CHECK(!call_);
    call_ = std::move(call);
    parser_ = {};
    input_.clear();
    sent_ = 0;
    sent_all_ = false;
    answered_ = false;
    socket_.set_deadline(pool_.silence_timeout());
    // Not from here: nothing may call the sink inside start().
    socket_.await_writable();
    socket_.await_readable();
  }

  bool serves(const ResponseSink& sink) const { return call_ && call_->sink == &sink; }

  void abandon() {
    call_.reset();
    close();
  }

 private:
  void close() {
    if (std::exchange(closed_, true)) return;
    socket_.close();
    pool_.drop(*this);
  }

  void on_writable() override {
    if (!call_ || sent_all_) return;
    const IoResult result = socket_.send(std::string_view(call_->bytes).substr(sent_));
    // A server may refuse a body before it has read it: its answer must still be read.
    if (result.state == IoState::kClosed) {
      if (!socket_.tls_failure().empty()) peer_ended();
      return;
    }
    if (result.state == IoState::kDone) sent_ += result.bytes;
    sent_all_ = sent_ == call_->bytes.size();
    if (!sent_all_) socket_.await_writable();
  }

  void on_readable() override {
    const IoResult result = socket_.receive(pool_.scratch());
    if (!call_) {
      // The connection is idle: the server has closed it, or has sent bytes without a request.
      if (result.state != IoState::kWouldBlock) return close();
      return socket_.await_readable();
    }
    if (result.state == IoState::kClosed) return peer_ended();
    if (result.state == IoState::kDone) {
      // Frees the request's bytes early: a prompt may be long and its answer slow.
      if (!std::exchange(answered_, true) && sent_all_) std::string().swap(call_->bytes);
      socket_.set_deadline(pool_.silence_timeout());
      take(std::string_view(pool_.scratch().data(), result.bytes));
    }
    if (!closed_) socket_.await_readable();
  }

  void on_deadline() override {
    if (call_) fail(ErrorCode::kDeadlineExceeded, pool_.silence());
  }
  void on_wake() override {}

  void take(std::string_view bytes) {
    const bool whole = input_.empty();
    if (!whole) input_ += bytes;
    const std::string_view all = whole ? bytes : std::string_view(input_);
    std::size_t used = 0;
    while (call_) {
      const ResponseParser::Step step = parser_.put(all.substr(used));
      used += step.consumed;
      switch (step.event) {
        case ResponseParser::Event::kNeedMore: input_ = std::string(all.substr(used)); return;
        case ResponseParser::Event::kHead: call_->sink->on_head(parser_.head()); break;
        case ResponseParser::Event::kBody: call_->sink->on_body(step.body); break;
        case ResponseParser::Event::kRefused:
          return fail(ErrorCode::kUnavailable, parser_.message());
        case ResponseParser::Event::kDone: return finish(used == all.size());
      }
    }
  }

  void finish(bool nothing_left) {
    ResponseSink* sink = call_->sink;
    const bool keep = parser_.keep_alive() && nothing_left && sent_all_;
    call_.reset();
    socket_.clear_deadline();
    if (keep) {
      used_before_ = true;
      pool_.keep(*this);
    } else {
      close();
    }
    sink->on_end({});  // may begin the next call on this connection
  }

  void peer_ended() {
    if (const std::string cause = socket_.tls_failure(); !cause.empty()) {
      return fail(ErrorCode::kUnavailable, cause);
    }
    if (!parser_.end_of_input()) return fail(ErrorCode::kUnavailable, parser_.message());
    finish(false);
  }

  void fail(ErrorCode code, std::string_view reason) {
    Call call = *std::exchange(call_, std::nullopt);
    const bool stale = used_before_ && !answered_ && code == ErrorCode::kUnavailable;
    close();
    if (stale && !call.repeated) {
      call.repeated = true;
      return pool_.repeat(std::move(call));
    }
    call.sink->on_end(Error{code, fmt::format("{}: {}", pool_.name(), reason)});
  }

  Pool& pool_;
  Socket socket_;
  std::optional<Call> call_;
  ResponseParser parser_;
  std::string input_;  // not yet consumed by the parser
  std::size_t sent_ = 0;
  bool sent_all_ = false;
  bool answered_ = false;     // a byte of this call's answer has come
  bool used_before_ = false;  // it has carried an answer
  bool closed_ = false;
};

std::string request_bytes(const HttpClientOptions& options, const ClientRequest& request) {
  std::string out =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: sluice\r\n", request.method,
                  options.url.prefix, request.path, options.url.authority);
  for (const Header& header : options.headers) {
    out += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  if (request.method != "GET") {
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n",
                       request.body.size());
  }
  out += "\r\n";
  return out + request.body;
}

}  // namespace

struct HttpClient::Impl final : Pool {
  void keep(ClientConnection& connection) override { idle.push_back(&connection); }

  void drop(ClientConnection& connection) override {
    std::erase(idle, &connection);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const auto& one) { return one.get() == &connection; });
    CHECK(found != all.end());
    // Deleted later, because one of its functions may be running.
    if (dropped.empty()) loop->post([this] { dropped.clear(); });
    dropped.push_back(std::move(*found));
    *found = std::move(all.back());
    all.pop_back();
  }

  void repeat(Call call) override { connect(std::move(call)); }

  void begin(Call call) {
    if (idle.empty()) return connect(std::move(call));
    ClientConnection* connection = idle.back();
    idle.pop_back();
    connection->run(std::move(call));
  }

  void connect(Call call) {
    const std::int64_t id = next_id++;
    connecting.emplace(id, std::move(call));
    connector->connect(options.connect_timeout, [this, id](Result<Socket> socket) {
      auto waiting = connecting.extract(id);
      if (!socket) {
        if (!waiting.empty()) waiting.mapped().sink->on_end(std::move(socket).error());
        return;
      }
      if (waiting.empty()) return;  // cancelled meanwhile
      ++opened;
      all.push_back(std::make_unique<ClientConnection>(*this, *std::move(socket)));
      all.back()->run(std::move(waiting.mapped()));
    });
  }

  std::span<char> scratch() override { return buffer; }
  const std::string& name() const override { return server; }
  Duration silence_timeout() const override { return options.silence_timeout; }
  std::string silence() const override {
    const std::string hint =
        options.silence_option.empty() ? "" : fmt::format(" ({})", options.silence_option);
    return fmt::format("no byte arrived for {:g} s{}", to_seconds(options.silence_timeout), hint);
  }

  EventLoop* loop = nullptr;
  HttpClientOptions options;
  std::string server;
  std::unique_ptr<TlsContext> tls;  // null: plain
  std::unique_ptr<Connector> connector;
  std::vector<std::unique_ptr<ClientConnection>> all;
  std::vector<std::unique_ptr<ClientConnection>> dropped;
  std::vector<ClientConnection*> idle;
  std::map<std::int64_t, Call> connecting;
  std::int64_t next_id = 0;
  std::int64_t opened = 0;
  std::vector<char> buffer = std::vector<char>(kReadBytes);
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::open(EventLoop& loop, HttpClientOptions options) {
  auto impl = std::make_unique<Impl>();
  const BaseUrl& url = options.url;
  if (url.tls) {
    ASSIGN_OR_RETURN(impl->tls, options.party ? TlsContext::of_party_client(*options.party)
                                              : TlsContext::of_client());
  }
  auto connector = url.unix_path.empty()
                       ? Connector::open(loop, url.host, url.port, impl->tls.get())
                       : Connector::open_unix(loop, url.unix_path);
  ASSIGN_OR_RETURN(impl->connector, std::move(connector));
  impl->loop = &loop;
  impl->server = server_name(url);
  impl->options = std::move(options);
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

void HttpClient::start(const ClientRequest& request, ResponseSink& sink) {
  impl_->begin({&sink, request_bytes(impl_->options, request), false});
}

void HttpClient::cancel(ResponseSink& sink) {
  for (auto it = impl_->connecting.begin(); it != impl_->connecting.end(); ++it) {
    if (it->second.sink != &sink) continue;
    impl_->connecting.erase(it);
    return;
  }
  for (const auto& connection : impl_->all) {
    if (connection->serves(sink)) return connection->abandon();
  }
}

std::int64_t HttpClient::connections() const { return impl_->opened; }

}  // namespace sluice::http
