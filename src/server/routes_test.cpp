#include "server/routes.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Routes, FindsEndpoints) {
  ASSERT_NE(find_route("GET", "/").route, nullptr);
  EXPECT_EQ(find_route("GET", "/").route->endpoint, Endpoint::kPage);
  EXPECT_EQ(find_route("GET", "/v1/models").route->endpoint, Endpoint::kModels);
  EXPECT_EQ(find_route("GET", "/v1/models/a/b").route->endpoint, Endpoint::kModel);
  EXPECT_EQ(find_route("POST", "/v1/completions").route->endpoint, Endpoint::kCompletion);
  EXPECT_EQ(find_route("GET", "/v1/kv/prefixes").route->endpoint, Endpoint::kListPins);
  EXPECT_EQ(find_route("GET", "/v1/kv/prefixes/a").route->endpoint, Endpoint::kShowPin);
  EXPECT_EQ(find_route("PUT", "/v1/kv/prefixes/a").route->endpoint, Endpoint::kPutPin);
  EXPECT_EQ(find_route("DELETE", "/v1/kv/prefixes/a").route->endpoint, Endpoint::kRemovePin);
}

TEST(Routes, AWrongMethodSaysWhichWouldBeRight) {
  const RouteMatch match = find_route("GET", "/v1/completions");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.allowed, "POST");
  EXPECT_EQ(find_route("DELETE", "/v1/models/demo").allowed, "GET, HEAD");
  EXPECT_EQ(find_route("POST", "/v1/kv/prefixes/a").allowed, "PUT, GET, HEAD, DELETE");
}

TEST(Routes, HeadIsAllowedWhereverGetIs) {
  ASSERT_NE(find_route("HEAD", "/health").route, nullptr);
  EXPECT_EQ(find_route("HEAD", "/health").route->endpoint, Endpoint::kHealth);
  EXPECT_EQ(find_route("HEAD", "/v1/completions").route, nullptr);
}

TEST(Routes, UnknownPathsAllowNothing) {
  for (const char* path : {"", "/v1", "/v1/models/", "/v1/completions/", "//", "/V1/models"}) {
    const RouteMatch match = find_route("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_EQ(match.allowed, "") << path;
  }
}

TEST(Routes, TheListNamesTheEndpointsOfTheApi) {
  const std::string list = api_endpoints();
  EXPECT_NE(list.find("POST /v1/messages, POST /v1/messages/count_tokens"), std::string::npos);
  EXPECT_EQ(list.find("/health"), std::string::npos);
}

TEST(Routes, ModelIdsAreDecoded) {
  EXPECT_EQ(model_id_of("/v1/models/demo"), "demo");
  EXPECT_EQ(pin_id_of("/v1/kv/prefixes/a%2eb"), "a.b");
  EXPECT_EQ(model_id_of("/v1/models/org%2Fname"), "org/name");
  EXPECT_EQ(model_id_of("/v1/models/a%2"), "a%2");
  EXPECT_EQ(model_id_of("/v1/models/a%zz%41"), "a%zzA");
}

}  // namespace
}  // namespace sluice
