#include "etcd/etcd_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(EtcdMessage, WritesRequests) {
  EXPECT_EQ(etcd_grant(5).path, "/v3/lease/grant");
  EXPECT_EQ(etcd_grant(5).body, R"({"TTL":"5"})");
  EXPECT_EQ(etcd_keep_alive(INT64_MAX).body, R"({"ID":"9223372036854775807"})");
  // From "a/" to "a0", the first key after all that begin with "a/".
  EXPECT_EQ(parse_json(etcd_range("a/", "", 7).body),
            parse_json(R"({"key":"YS8=","range_end":"YTA=","limit":"7"})"));
  EXPECT_EQ(parse_json(etcd_range("a/", "a/b", 7).body)["key"], "YS9iAA==");
  EXPECT_EQ(parse_json(etcd_range("a\xff", "", 1).body)["range_end"], "Yg==");
  EtcdTransaction transaction;
  transaction.absent = {"a"};
  transaction.equal = {{"b", "v", 0, 0}};
  transaction.reads = {"b"};
  transaction.changes = {{"c", "1"}, {"d", std::nullopt}};
  transaction.lease = 9;
  transaction.leased = {{"a", "x"}};
  EXPECT_EQ(parse_json(etcd_transaction(transaction).body), parse_json(R"({
    "compare": [{"target": "CREATE", "result": "EQUAL", "key": "YQ==", "create_revision": "0"},
                {"target": "VALUE", "result": "EQUAL", "key": "Yg==", "value": "dg=="}],
    "success": [{"request_range": {"key": "Yg=="}},
                {"request_put": {"key": "Yw==", "value": "MQ=="}},
                {"request_delete_range": {"key": "ZA=="}},
                {"request_put": {"key": "YQ==", "value": "eA==", "lease": "9"}}],
    "failure": [{"request_range": {"key": "Yg=="}}]})"));
}

// Answers of etcd 3.4.23.
TEST(EtcdMessage, ReadsAnswers) {
  const auto lease = parse_etcd_lease(
      R"({"header":{"revision":"1","raft_term":"2"},"ID":"7587899116779427589","TTL":"2"})");
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id, 7587899116779427589);
  EXPECT_EQ(lease->ttl_s, 2);
  const auto ended = parse_etcd_lease("{\"result\":{\"header\":{},\"ID\":\"123\"}}\n");
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->ttl_s, 0);
  const std::string pairs = R"("kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"3",
      "version":"1","value":"Yg=="},{"key":"Yw=="}],"count":"2")";
  const auto range = parse_etcd_range(R"({"header":{"revision":"8"},"more":true,)" + pairs + "}");
  ASSERT_TRUE(range) << range.error().message;
  EXPECT_EQ(range->revision, 8);
  EXPECT_TRUE(range->more);
  EXPECT_EQ(range->pairs, (std::vector<EtcdPair>{{"a", "b", 2, 3}, {"c", "", 0, 0}}));
  const auto outcome = parse_etcd_outcome(
      R"({"header":{"revision":"9"},"succeeded":true,"responses":[{"response_put":{}},)"
      R"({"response_range":{)" +
      pairs + "}}]}");
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->succeeded);
  EXPECT_EQ(outcome->pairs.size(), 2U);
  EXPECT_FALSE(parse_etcd_outcome(R"({"header":{"revision":"9"}})")->succeeded);
  EXPECT_THAT(etcd_error_text(400, R"({"message":"no space","code":8})"), HasSubstr("no space"));
  EXPECT_THAT(etcd_error_text(502, "<html>"), HasSubstr("502"));
}

TEST(EtcdMessage, RefusesWhatIsNoAnswer) {
  for (const char* text :
       {"", "[]", "{", "{}", R"({"header":{}})", R"({"header":[]})",
        R"({"header":{"revision":"x"}})", R"({"header":{"revision":"-3"}})",
        R"({"header":{"revision":"1"},"kvs":{}})", R"({"header":{"revision":"1"},"kvs":[1]})",
        R"({"header":{"revision":"1"},"kvs":[{"value":"YQ=="}]})",
        R"({"header":{"revision":"1"},"kvs":[{"key":"?"}]})",
        R"({"header":{"revision":"1"},"more":true})", R"({"header":{"revision":"4398046511105"}})",
        R"({"header":{"revision":18446744073709551615}})"}) {
    EXPECT_FALSE(parse_etcd_range(text)) << text;
  }
  EXPECT_FALSE(parse_etcd_outcome(R"({"header":{"revision":"1"},"responses":1})"));
  EXPECT_FALSE(parse_etcd_lease(R"({"TTL":"3"})"));
  EXPECT_FALSE(parse_etcd_lease(R"({"ID":"3","TTL":"-1"})"));
  EXPECT_FALSE(parse_etcd_lease(R"({"ID":"3","TTL":"9223372036854775807"})"));
  EXPECT_FALSE(parse_etcd_range(std::string(100, '[')));
}

}  // namespace
}  // namespace sluice
