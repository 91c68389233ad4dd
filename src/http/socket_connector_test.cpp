// Connector: sockets towards a server, and what is said when there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "http/socket.h"
#include "http/test_server.h"

namespace sluice::http {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// A port on which nothing listens.
std::uint16_t unused_port() {
  EventLoop loop;
  auto listener = Listener::open(loop, "127.0.0.1", 0, {}, [](Socket, const std::string&) {});
  return (*listener)->port();
}

// The first connection, or why there is none.
Result<Socket> connect_once(EventLoop& loop, Connector& connector) {
  std::optional<Result<Socket>> result;
  connector.connect(seconds(5), [&](Result<Socket> socket) {
    result.emplace(std::move(socket));
    loop.stop();
  });
  EXPECT_FALSE(result.has_value()) << "called back from inside the call";
  loop.run();
  return std::move(*result);
}

// Sends one request and reads until the server closes.
class OneRequest final : public SocketEvents {
 public:
  OneRequest(EventLoop& loop, Socket& socket) : loop_(loop), socket_(socket) {
    socket_.set_events(*this);
    socket_.set_deadline(seconds(5));
    socket_.await_writable();
  }
  void on_writable() override {
    const std::string_view text = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    ASSERT_EQ(socket_.send(text).bytes, text.size());
    socket_.await_readable();
  }
  void on_readable() override {
    std::array<char, 4096> buffer;
    const IoResult result = socket_.receive(buffer);
    if (result.state == IoState::kClosed) return loop_.stop();
    answer.append(buffer.data(), result.bytes);
    socket_.await_readable();
  }
  void on_deadline() override { loop_.stop(); }
  void on_wake() override {}

  std::string answer;

 private:
  EventLoop& loop_;
  Socket& socket_;
};

TEST(Connector, ConnectsByNameAndItsSocketSpeaks) {
  TestServer server;
  EventLoop loop;
  auto connector = Connector::open(loop, "localhost", server.port());
  ASSERT_TRUE(connector.has_value()) << connector.error().message;
  auto connected = connect_once(loop, **connector);
  ASSERT_TRUE(connected.has_value()) << connected.error().message;
}

TEST(Connector, ItsSocketSendsAndReceives) {
  TestServer server;
  EventLoop loop;
  auto connector = Connector::open(loop, "127.0.0.1", server.port());
  ASSERT_TRUE(connector.has_value());
  std::optional<Socket> socket;
  std::optional<OneRequest> request;
  (*connector)->connect(seconds(5), [&](Result<Socket> connected) {
    ASSERT_TRUE(connected.has_value());
    socket.emplace(std::move(*connected));
    request.emplace(loop, *socket);
  });
  loop.run();
  ASSERT_TRUE(request.has_value());
  EXPECT_THAT(request->answer, HasSubstr("200 OK"));
  EXPECT_THAT(request->answer, HasSubstr("GET /x?"));
}

TEST(Connector, SaysWhyThereIsNoConnection) {
  const std::uint16_t port = unused_port();
  EventLoop loop;
  auto connector = Connector::open(loop, "127.0.0.1", port);
  ASSERT_TRUE(connector.has_value());
  const auto refused = connect_once(loop, **connector);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("127.0.0.1 port " + std::to_string(port)));
  EXPECT_THAT(refused.error().message, HasSubstr("refused"));
}

TEST(Connector, SaysWhenTimeRanOut) {
  EventLoop loop;
  // A block of addresses that leads nowhere (RFC 5737), or is refused at once as unreachable.
  auto connector = Connector::open(loop, "192.0.2.1", 9);
  ASSERT_TRUE(connector.has_value());
  std::optional<Result<Socket>> result;
  (*connector)->connect(std::chrono::milliseconds(20), [&](Result<Socket> socket) {
    result.emplace(std::move(socket));
    loop.stop();
  });
  loop.run();
  ASSERT_FALSE(result->has_value());
  EXPECT_THAT(result->error().message, HasSubstr("cannot connect to 192.0.2.1 port 9"));
}

TEST(Connector, NamesAHostThatIsNotKnown) {
  EventLoop loop;
  const auto connector = Connector::open(loop, "no-such-host.invalid", 80);
  ASSERT_FALSE(connector.has_value());
  EXPECT_THAT(connector.error().message, HasSubstr("no-such-host.invalid"));
}

TEST(Connector, ForgetsWhatIsBeingConnectedWhenItEnds) {
  TestServer server;
  EventLoop loop;
  auto connector = Connector::open(loop, "127.0.0.1", server.port());
  ASSERT_TRUE(connector.has_value());
  (*connector)->connect(seconds(5), [](Result<Socket>) { FAIL(); });
  connector->reset();
  loop.after(std::chrono::milliseconds(20), [&] { loop.stop(); });
  loop.run();
}

}  // namespace
}  // namespace sluice::http
