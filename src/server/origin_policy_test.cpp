#include "server/origin_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

http::Request request(std::string authority, std::string origin = {},
                      std::string local = "127.0.0.1") {
  http::Request head;
  head.method = "POST";
  head.authority = std::move(authority);
  head.local = std::move(local);
  if (!origin.empty()) head.headers.push_back({"origin", std::move(origin)});
  return head;
}

// The error's code; "" when the request passes.
std::string refused(const OriginPolicy& policy, const http::Request& head) {
  const auto error = policy.refuse(head);
  if (!error) return "";
  EXPECT_EQ(error->status, 403);
  return error->code;
}

TEST(OriginPolicy, LoopbackNamesAndAddressesAreOurs) {
  const OriginPolicy policy;
  for (const char* host : {"localhost", "LocalHost:8000", "localhost.", "a.localhost", "127.0.0.1",
                           "127.8.9.10:1", "[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]:80", ""}) {
    EXPECT_EQ(refused(policy, request(host)), "") << host;
  }
  for (const char* host : {"evil.example", "127.evil.example", "127.0.0.1.evil.example",
                           "localhost.evil.example", "10.0.0.1", "[::2]", "192.168.1.5:8000"}) {
    EXPECT_EQ(refused(policy, request(host)), "host_not_allowed") << host;
  }
}

TEST(OriginPolicy, AddressesThatAreListenedOnAndAllowedHostsAreOurs) {
  const auto policy = OriginPolicy::create(
      {.listen_host = "box.lan", .allowed_hosts = {"Chat.Example.org", "fd00::1"}});
  ASSERT_TRUE(policy) << policy.error().message;
  for (const char* host : {"box.lan:8000", "chat.example.org", "[fd00::1]:80"}) {
    EXPECT_EQ(refused(*policy, request(host)), "") << host;
  }
  EXPECT_EQ(refused(*policy, request("10.1.2.3:8000", "", "10.1.2.3")), "");
  EXPECT_EQ(refused(*policy, request("10.1.2.4:8000", "", "10.1.2.3")), "host_not_allowed");
  EXPECT_EQ(refused(*OriginPolicy::create({.allowed_hosts = {"*"}}), request("any.example")), "");
}

TEST(OriginPolicy, OnlyPagesOfTheServerItselfMayCall) {
  const OriginPolicy policy;
  EXPECT_EQ(refused(policy, request("127.0.0.1:8000", "http://127.0.0.1:8000")), "");
  EXPECT_EQ(refused(policy, request("LOCALHOST:80", "http://localhost")), "");
  EXPECT_EQ(refused(policy, request("localhost", "https://localhost:443")), "");
  for (const char* origin : {"http://evil.example", "null", "http://127.0.0.1:3000",
                             "http://localhost:8000", "file://", "127.0.0.1:8000", "http://"}) {
    EXPECT_EQ(refused(policy, request("127.0.0.1:8000", origin)), "origin_not_allowed") << origin;
  }
}

TEST(OriginPolicy, EveryOriginOfARequestCounts) {
  const OriginPolicy policy;
  auto head = request("localhost:8000", "http://localhost:8000");
  head.headers.push_back({"Origin", "http://evil.example"});
  EXPECT_EQ(refused(policy, head), "origin_not_allowed");
}

TEST(OriginPolicy, ARefusalNamesTheHost) {
  const auto error = OriginPolicy().refuse(request("chat.example:80"));
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("'chat.example'"));
  EXPECT_LT(OriginPolicy().refuse(request(std::string(9000, 'a')))->message.size(), 200U);
}

TEST(OriginPolicy, AllowedOriginsPassAndAreNamed) {
  const auto policy = OriginPolicy::create({.cors_origins = {"http://localhost:3000"}});
  ASSERT_TRUE(policy);
  const auto head = request("127.0.0.1:8000", "http://localhost:3000");
  EXPECT_EQ(refused(*policy, head), "");
  EXPECT_EQ(policy->cors_origin(head), "http://localhost:3000");
  const auto own = request("127.0.0.1:8000", "http://127.0.0.1:8000");
  EXPECT_EQ(policy->cors_origin(own), "");
  const auto any = OriginPolicy::create({.cors_origins = {"*"}});
  EXPECT_EQ(refused(*any, request("127.0.0.1", "null")), "");
}

TEST(OriginPolicy, OptionsThatCanMatchNothingAreRefused) {
  for (const char* host : {"", "http://a.example", "a.example:80", "a b"}) {
    const auto policy = OriginPolicy::create({.allowed_hosts = {host}});
    ASSERT_FALSE(policy) << host;
    EXPECT_THAT(policy.error().message, HasSubstr("--allowed-host"));
  }
  for (const char* origin : {"", "a.example", "ftp://a.example", "http://", "http://a.example/"}) {
    const auto policy = OriginPolicy::create({.cors_origins = {origin}});
    ASSERT_FALSE(policy) << origin;
    EXPECT_THAT(policy.error().message, HasSubstr("--cors-origin"));
  }
}

TEST(OriginPolicy, APreflightAllowsTheHeadersThatItAsksFor) {
  auto head = request("127.0.0.1", "http://localhost:3000");
  EXPECT_FALSE(preflight_response(head));
  head.method = "OPTIONS";
  EXPECT_FALSE(preflight_response(head));
  head.headers.push_back({"Access-Control-Request-Method", "POST"});
  head.headers.push_back({"Access-Control-Request-Headers", "authorization,x-stainless-os"});
  const auto response = preflight_response(head);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 204);
  EXPECT_EQ(response->headers.back().value, "authorization,x-stainless-os");
}

}  // namespace
}  // namespace sluice
