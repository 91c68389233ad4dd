#include "http/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "http/fetch.h"
#include "http/socket.h"
#include "http/test_server.h"

namespace sluice::http {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

HttpClientOptions options_for(std::uint16_t port) {
  HttpClientOptions options;
  options.url = *parse_base_url("http://127.0.0.1:" + std::to_string(port));
  return options;
}

// Collects answers; stops the loop when the last of `wanted` has ended.
class Collector final : public ResponseSink {
 public:
  Collector(EventLoop& loop, int wanted) : loop_(loop), wanted_(wanted) {}
  void on_head(const ResponseHead& head) override { status = head.status; }
  void on_body(std::string_view piece) override { body += piece; }
  void on_end(Status result) override {
    ended = std::move(result);
    ++ends;
    if (after) return after();
    if (ends == wanted_) loop_.stop();
  }

  int status = 0;
  std::string body;
  std::optional<Status> ended;
  int ends = 0;
  std::function<void()> after;

 private:
  EventLoop& loop_;
  int wanted_;
};

TEST(HttpClient, SendsARequestAndReadsItsAnswer) {
  TestServer server;
  HttpClientOptions options = options_for(server.port());
  options.url.prefix = "/api";
  options.headers = {{"X-Id", "42"}};
  const auto answer = fetch(options, {"POST", "/echo?a=b", "{\"x\":1}"});
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "POST /api/echo?a=b\n{\"x\":1}");
  options.url.prefix = "";
  EXPECT_EQ(fetch(options, {"GET", "/refused", {}})->status, 401);
}

TEST(HttpClient, ReadsStreamsAndLargeAnswers) {
  TestServer server;
  const auto options = options_for(server.port());
  EXPECT_EQ(fetch(options, {"GET", "/stream", {}})->body, "one two three");
  EXPECT_EQ(fetch(options, {"GET", "/large", {}})->body.size(), std::size_t{8} << 20);
  EXPECT_EQ(fetch(options, {"GET", "/none", {}})->status, 204);
  const std::string large(3 << 20, 'y');
  EXPECT_EQ(fetch(options, {"POST", "/echo", large})->body, "POST /echo?\n" + large);
}

TEST(HttpClient, KeepsItsConnectionFromRequestToRequest) {
  TestServer server;
  EventLoop loop;
  auto client = HttpClient::open(loop, options_for(server.port()));
  ASSERT_TRUE(client.has_value());
  Collector sink(loop, 0);
  sink.after = [&] {
    if (sink.ends == 10) return loop.stop();
    (*client)->start({"GET", "/x", {}}, sink);
  };
  (*client)->start({"GET", "/x", {}}, sink);
  loop.run();
  EXPECT_EQ(sink.ends, 10);
  EXPECT_EQ((*client)->connections(), 1);
  EXPECT_EQ(server.handled(), 10);
}

TEST(HttpClient, RequestsAtOnceHaveConnectionsOfTheirOwn) {
  TestServer server;
  EventLoop loop;
  auto client = HttpClient::open(loop, options_for(server.port()));
  ASSERT_TRUE(client.has_value());
  Collector first(loop, 1);
  Collector second(loop, 1);
  (*client)->start({"GET", "/hold", {}}, first);
  (*client)->start({"GET", "/x", {}}, second);
  loop.run();
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(first.ends, 0);
  EXPECT_EQ((*client)->connections(), 2);
}

TEST(HttpClient, AKeptConnectionThatTheServerClosedIsReplacedUnseen) {
  HttpLimits limits;
  limits.idle_timeout = milliseconds(20);
  TestServer server(limits);
  EventLoop loop;
  auto client = HttpClient::open(loop, options_for(server.port()));
  ASSERT_TRUE(client.has_value());
  Collector sink(loop, 2);
  (*client)->start({"GET", "/x", {}}, sink);
  std::function<void()> start_when_closed = [&] {
    const bool closed = sink.ends == 1 && server.stats().open_connections == 0;
    if (closed) return (*client)->start({"GET", "/x", {}}, sink);
    loop.after(milliseconds(5), start_when_closed);
  };
  start_when_closed();
  loop.run();
  EXPECT_TRUE(sink.ended->has_value());
  EXPECT_EQ((*client)->connections(), 2);
}

// Answers the first request of a connection and closes at the second, without a word, as a server
// does whose idle time ran out while the request was on its way.
class OnceServer {
 public:
  explicit OnceServer(EventLoop& loop) {
    auto listener =
        Listener::open(loop, "127.0.0.1", 0, {}, [this](Socket socket, const std::string&) {
          peers_.push_back(std::make_unique<Peer>(std::move(socket)));
        });
    listener_ = std::move(*listener);
  }
  std::uint16_t port() const { return listener_->port(); }
  std::size_t connections() const { return peers_.size(); }

 private:
  struct Peer final : SocketEvents {
    explicit Peer(Socket taken) : socket(std::move(taken)) {
      socket.set_events(*this);
      socket.await_readable();
    }
    void on_readable() override {
      char buffer[4096];
      if (socket.receive(buffer).state == IoState::kClosed) return socket.close();
      if (answered) return socket.close();
      answered = true;
      socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      socket.await_readable();
    }
    void on_writable() override {}
    void on_deadline() override {}
    void on_wake() override {}
    Socket socket;
    bool answered = false;
  };
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

TEST(HttpClient, ARequestThatFindsItsKeptConnectionClosingIsSentOnceMore) {
  EventLoop loop;
  OnceServer server(loop);
  auto client = HttpClient::open(loop, options_for(server.port()));
  ASSERT_TRUE(client.has_value());
  Collector sink(loop, 0);
  sink.after = [&] {
    if (sink.ends == 3) return loop.stop();
    (*client)->start({"POST", "/x", "{}"}, sink);
  };
  (*client)->start({"POST", "/x", "{}"}, sink);
  loop.run();
  EXPECT_TRUE(sink.ended->has_value()) << sink.ended->error().message;
  EXPECT_EQ(server.connections(), 3U);
}

TEST(HttpClient, CancelledRequestsEndTheirConnectionsAndAreSilent) {
  TestServer server;
  EventLoop loop;
  auto client = HttpClient::open(loop, options_for(server.port()));
  ASSERT_TRUE(client.has_value());
  Collector held(loop, 1);
  Collector connecting(loop, 1);
  (*client)->start({"GET", "/hold", {}}, held);
  (*client)->start({"GET", "/x", {}}, connecting);
  (*client)->cancel(connecting);
  loop.after(milliseconds(100), [&] { (*client)->cancel(held); });
  loop.after(milliseconds(150), [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(held.ends + connecting.ends, 0);
  EXPECT_EQ(server.close_reason(), CloseReason::kPeerGone);
}

TEST(HttpClient, ReportsThatNoServerListens) {
  std::uint16_t port = 0;
  {
    const TestServer server;
    port = server.port();
  }
  const auto refused = fetch(options_for(port), {"GET", "/", {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("port " + std::to_string(port)));
  EXPECT_THAT(refused.error().message, HasSubstr("refused"));
}

TEST(HttpClient, SaysWhenNothingComesForTooLong) {
  TestServer server;
  HttpClientOptions options = options_for(server.port());
  options.silence_timeout = milliseconds(50);
  const auto silent = fetch(options, {"GET", "/hold", {}});
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(silent.error().message, HasSubstr("no byte arrived for 0.05 s"));
  options.silence_option = "--request-timeout";
  const auto with_hint = fetch(options, {"GET", "/hold", {}});
  ASSERT_FALSE(with_hint.has_value());
  EXPECT_THAT(with_hint.error().message, HasSubstr("0.05 s (--request-timeout)"));
}

}  // namespace
}  // namespace sluice::http
