#include "coordinator/coordinator_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "lending/lending_json.h"
#include "tests/support/fake_exchange.h"
#include "tests/support/load_token.h"

namespace sluice {
namespace {

using test::kToken;
using test::load_token;
using testing::HasSubstr;

class HandClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration time) { now_ = now_ + time; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

class CoordinatorServiceTest : public testing::Test {
 protected:
  CoordinatorServiceTest()
      : state_({.budgets = {{"cpu", 1000}}}, clock_),
        service_(state_, *load_token(kToken), clock_, "1.2") {}

  http::Response call(const std::string& method, const std::string& path, const std::string& body,
                      const std::string& token = kToken) {
    http::Request request;
    request.method = method;
    request.path = path;
    request.body = body;
    if (!token.empty()) request.headers.push_back({"Authorization", "Bearer " + token});
    if (auto refused = service_.admit(request)) return *refused;
    // Shared as every exchange is.
    const auto exchange = std::make_shared<test::FakeExchange>(std::move(request));
    service_.handle(exchange);
    return *exchange->head;
  }
  nlohmann::json post(const std::string& verb, const std::string& body) {
    return parse_json(call("POST", "/v1/" + verb, body).body);
  }

  HandClock clock_;
  CoordinatorState state_;
  CoordinatorService service_;
};

TEST_F(CoordinatorServiceTest, LendsAndShowsIt) {
  const auto joined = post("join", R"({"party":"a","key":"j","device":"cpu"})");
  const auto epoch = joined["epoch"].get<std::uint64_t>();
  EXPECT_GT(joined["no_grants_for_ms"], 0);
  const auto borrow = [&](int key) {
    return fmt::format(R"({{"party":"a","epoch":{},"key":"k{}","bytes":600}})", epoch, key);
  };
  EXPECT_EQ(post("allocate", borrow(1))["granted"], 0);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(std::chrono::seconds(4));
    post("heartbeat", fmt::format(R"({{"party":"a","epoch":{}}})", epoch));
  }
  EXPECT_EQ(post("allocate", borrow(2))["granted"], 600);
  const auto status = parse_json(call("GET", "/v1/status", "").body);
  EXPECT_EQ(status["leases"][0]["lease"], "budget/cpu");
  EXPECT_EQ(status["leases"][0]["lent"], 600);
  EXPECT_EQ(status["loans"][0]["borrower"], "a");
  const std::string metrics = call("GET", "/metrics", "").body;
  EXPECT_THAT(metrics, HasSubstr("sluice:coordinator_parties 1\n"));
  EXPECT_THAT(
      metrics,
      HasSubstr("sluice:coordinator_lent_bytes{device=\"cpu\",lease=\"budget/cpu\"} 600\n"));
  EXPECT_THAT(metrics, HasSubstr("sluice:coordinator_requests_total{verb=\"allocate\"} 2\n"));
  clock_.advance(std::chrono::seconds(11));
  EXPECT_EQ(parse_json(call("GET", "/v1/status", "").body)["expired_parties"], 1);
}

TEST_F(CoordinatorServiceTest, OnlyHoldersOfTheTokenLend) {
  for (const std::string token : {"", "0123456789abcdef0124", "0123456789abcdef012", "x"}) {
    const auto answer =
        call("POST", "/v1/join", R"({"party":"a","key":"j","device":"cpu"})", token);
    EXPECT_EQ(answer.status, 401);
    EXPECT_THAT(answer.body, HasSubstr("Bearer TOKEN"));
    EXPECT_EQ(call("GET", "/v1/status", "", token).status, 401);
    EXPECT_EQ(call("GET", "/metrics", "", token).status, 401);
    EXPECT_EQ(call("GET", "/health", "", token).status, 200);
  }
  EXPECT_TRUE(parse_json(call("GET", "/v1/status", "").body)["parties"].empty());
}

TEST_F(CoordinatorServiceTest, ErrorsHaveTheirStatus) {
  EXPECT_EQ(call("POST", "/v1/loan", "{}").status, 404);
  EXPECT_EQ(call("GET", "/v1/join", "").status, 405);
  EXPECT_EQ(call("POST", "/v1/status", "").status, 405);
  EXPECT_EQ(call("POST", "/v1/join", "{").status, 400);
  EXPECT_EQ(call("POST", "/v1/heartbeat", R"({"party":"a","epoch":1})").status, 404);
  post("join", R"({"party":"a","key":"j","device":"cpu"})");
  const auto stale = call("POST", "/v1/heartbeat", R"({"party":"a","epoch":99})");
  EXPECT_EQ(stale.status, 409);
  EXPECT_EQ(parse_json(stale.body)["error"]["code"], "stale_epoch");
  const auto below = call("POST", "/v1/heartbeat", R"({"party":"a","epoch":-1})");
  EXPECT_EQ(below.status, 400);
  EXPECT_THAT(below.body, HasSubstr("epoch must not be negative"));
  const auto negative =
      call("POST", "/v1/allocate", R"({"party":"a","epoch":1,"key":"k","bytes":-1})");
  EXPECT_EQ(negative.status, 400);
  EXPECT_THAT(negative.body, HasSubstr("bytes must be from 1 to"));
}

// The document names each path and each field that the readers know, and no other.
TEST_F(CoordinatorServiceTest, DescribesItself) {
  const auto document = parse_json(call("GET", "/openapi.json", "", "").body);
  for (const LendVerb verb : lend_verbs()) {
    const std::string path = "/v1/" + std::string(lend_verb_name(verb));
    const auto& schema =
        document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
    const auto sent = parse_json(lend_request_json(
        {.verb = verb, .kind = LendKind::kPages, .socket = "s", .earlier_joins = {"k"}}));
    ASSERT_EQ(schema["properties"].size(), sent.size()) << path;
    for (const auto& [name, value] : sent.items()) {
      EXPECT_TRUE(schema["properties"].contains(name)) << path << " " << name;
    }
    for (const auto& name : schema["required"]) EXPECT_TRUE(sent.contains(name)) << path;
  }
  for (const char* path : {"/v1/status", "/metrics", "/health", "/openapi.json"}) {
    EXPECT_TRUE(document["paths"][path].contains("get")) << path;
    EXPECT_EQ(call("GET", path, "").status, 200) << path;
  }
}

TEST(BearerTokenTest, RefusesPoorTokens) {
  for (const char* text : {"", "short", "0123456789 abcdef0123", "0123456789abcde\xff\x31 23"}) {
    const auto token = load_token(text);
    ASSERT_FALSE(token) << text;
    EXPECT_THAT(token.error().message, HasSubstr("16 to 1024 printable"));
  }
  EXPECT_FALSE(BearerToken::load("no such file"));
  const auto token = load_token("  0123456789abcdef \r\nmore");
  ASSERT_TRUE(token);
  EXPECT_EQ(token->header(), "Bearer 0123456789abcdef");
}

}  // namespace
}  // namespace sluice
