// Listening on IPv6 in the forms that users write. Skipped, and said so, where there is no IPv6.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <memory>
#include <optional>
#include <string>

#include "http/http_server.h"
#include "http/test_client.h"
#include "http/test_server.h"

namespace sluice::http {
namespace {

using ::testing::HasSubstr;

// An address of this machine that is only valid with its interface: "fe80::1%eth0".
std::optional<std::string> link_local_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  std::optional<std::string> found;
  for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET6) continue;
    const auto* address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) || (one->ifa_flags & IFF_RUNNING) == 0)
      continue;
    char text[NI_MAXHOST] = {};
    if (getnameinfo(one->ifa_addr, sizeof(*address), text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      found = text;
    }
  }
  freeifaddrs(all);
  return found;
}

bool resolves_to_ipv6(const char* name) {
  addrinfo hints{};
  hints.ai_family = AF_INET6;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name, nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

class HttpServerIpv6 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!listen("::1", 0)) GTEST_SKIP() << "NOT TESTED: this machine has no IPv6 (no address ::1)";
  }

  // With a handler that is never reached: for what listening itself answers.
  Result<std::unique_ptr<HttpServer>> listen(const std::string& host, std::uint16_t port) {
    return HttpServer::listen(loop_, host, port, {}, handler_, clock_);
  }

  // The client's address as the server sees it.
  static std::string peer_seen(TestServer& server, const std::string& address) {
    TestClient client(address, server.port());
    if (!client.connected()) return "not connected";
    client.send("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
    const auto answer = client.answer();
    if (!answer) return "no answer";
    const std::size_t begin = answer->head.find("X-Peer: ") + 8;
    const std::string peer = answer->head.substr(begin, answer->head.find('\r', begin) - begin);
    return peer.substr(0, peer.rfind(':'));
  }

 private:
  class Silent final : public Handler {
    std::optional<Response> admit(const Request&) override { return Response{}; }
    void handle(std::shared_ptr<Exchange>) override {}  // shared as every exchange is
    Response refusal(const Request&, int status, std::string) override {
      return {status, "", {}, ""};
    }
  };

  EventLoop loop_;
  Silent handler_;
  SystemClock clock_;
};

TEST_F(HttpServerIpv6, LoopbackTakesIpv6Alone) {
  for (const char* host : {"::1", "0:0:0:0:0:0:0:1", "0000::0001"}) {
    TestServer server({}, host);
    EXPECT_EQ(peer_seen(server, "::1"), "[::1]") << host;
    EXPECT_FALSE(TestClient("127.0.0.1", server.port()).connected()) << host;
  }
}

TEST_F(HttpServerIpv6, AllAddressesTakeIpv4TooAndShowItAsSuch) {
  TestServer server({}, "::");
  EXPECT_EQ(peer_seen(server, "::1"), "[::1]");
  EXPECT_EQ(peer_seen(server, "127.0.0.1"), "127.0.0.1");
}

TEST_F(HttpServerIpv6, MappedAddressesAreIpv4) {
  TestServer server({}, "::ffff:127.0.0.1");
  EXPECT_EQ(peer_seen(server, "127.0.0.1"), "127.0.0.1");
  EXPECT_FALSE(TestClient("::1", server.port()).connected());
}

TEST_F(HttpServerIpv6, ANameListensOnAllItsAddressesAtOnePort) {
  TestServer server({}, "localhost");
  EXPECT_EQ(peer_seen(server, "127.0.0.1"), "127.0.0.1");
  if (resolves_to_ipv6("localhost")) {
    EXPECT_EQ(peer_seen(server, "::1"), "[::1]");
  }
}

TEST_F(HttpServerIpv6, LinkLocalAddressesCarryTheirInterface) {
  const auto address = link_local_address();
  if (!address) GTEST_SKIP() << "NOT TESTED: no interface has a link-local address";
  TestServer server({}, *address);
  EXPECT_EQ(peer_seen(server, *address), "[" + *address + "]");
}

TEST_F(HttpServerIpv6, ErrorsNameTheAddress) {
  const auto first = listen("::1", 0);
  ASSERT_TRUE(first.has_value());
  const std::uint16_t port = (*first)->port();
  const auto taken = listen("::1", port);
  ASSERT_FALSE(taken.has_value());
  EXPECT_THAT(taken.error().message, HasSubstr("::1 port " + std::to_string(port)));
  EXPECT_THAT(taken.error().message, HasSubstr("in use"));
  const auto foreign = listen("2001:db8::1", 0);  // reserved for documentation: no machine has it
  ASSERT_FALSE(foreign.has_value());
  EXPECT_THAT(foreign.error().message, HasSubstr("2001:db8::1"));
  EXPECT_FALSE(listen("::1::", 0).has_value());
  const auto brackets = listen("[::1]", 0);
  ASSERT_FALSE(brackets.has_value());
  EXPECT_EQ(brackets.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(brackets.error().message, HasSubstr("[::1]: write IPv6 addresses without brackets"));
}

}  // namespace
}  // namespace sluice::http
