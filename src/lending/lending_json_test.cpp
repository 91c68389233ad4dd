#include "lending/lending_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(LendingJsonTest, RequestsSurviveTheirText) {
  LendRequest full{.party = "a",
                   .epoch = 7,
                   .key = "k",
                   .device = "cpu",
                   .kind = LendKind::kPages,
                   .socket = "s",
                   .lease = "b/x",
                   .bytes = 5,
                   .want = 6,
                   .spare = 8,
                   .held = {{"b/x", 3}},
                   .leases = {{"y", 4}},
                   .earlier_joins = {"i"}};
  for (const LendVerb verb : lend_verbs()) {
    full.verb = verb;
    const std::string text = lend_request_json(full);
    const auto read = parse_lend_request(verb, text);
    ASSERT_TRUE(read) << text << ": " << read.error().message;
    EXPECT_EQ(lend_request_json(*read), text);
    EXPECT_EQ(read->party, "a");
  }
}

TEST(LendingJsonTest, AnswersSurviveTheirText) {
  LendAnswer answer;
  answer.reply.epoch = 9;
  answer.reply.expiry = std::chrono::seconds(10);
  answer.reply.no_grants_for = std::chrono::seconds(3);
  answer.reply.granted = 4;
  answer.reply.available = 2;
  answer.reply.loans = {{"b/x", "b", 10, 6, "s"}};
  answer.reply.leases = {{"a/pages", 20, 5, 15, {{"c", 15, 10}}}};
  const auto read = parse_lend_answer(lend_answer_json(answer));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->reply.epoch, 9U);
  EXPECT_EQ(read->reply.expiry, answer.reply.expiry);
  EXPECT_EQ(read->reply.no_grants_for, answer.reply.no_grants_for);
  EXPECT_EQ(read->reply.granted, 4);
  EXPECT_EQ(read->reply.available, 2);
  ASSERT_EQ(read->reply.loans.size(), 1U);
  EXPECT_EQ(read->reply.loans[0].keep, 6);
  EXPECT_EQ(read->reply.loans[0].socket, "s");
  ASSERT_EQ(read->reply.leases.size(), 1U);
  EXPECT_EQ(read->reply.leases[0].wanted_back, 5);
  ASSERT_EQ(read->reply.leases[0].holders.size(), 1U);
  EXPECT_EQ(read->reply.leases[0].holders[0], (LeaseHolder{"c", 15, 10}));

  answer.fault = LendFault::kStaleEpoch;
  answer.message = "over";
  const auto fault = parse_lend_answer(lend_answer_json(answer));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->fault, LendFault::kStaleEpoch);
  EXPECT_EQ(fault->message, "over");
}

TEST(LendingJsonTest, SaysZeroOnlyWhenGrantsAreMade) {
  LendAnswer answer;
  answer.reply.epoch = 9;
  answer.reply.expiry = std::chrono::seconds(10);
  answer.reply.no_grants_for = std::chrono::microseconds(1);
  const auto read = parse_lend_answer(lend_answer_json(answer));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reply.no_grants_for, std::chrono::milliseconds(1));
}

struct Wrong {
  LendVerb verb;
  const char* body;
  const char* message;
};

class LendingJsonErrorTest : public testing::TestWithParam<Wrong> {};

TEST_P(LendingJsonErrorTest, NamesTheField) {
  const auto read = parse_lend_request(GetParam().verb, GetParam().body);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, LendingJsonErrorTest,
    testing::Values(
        Wrong{LendVerb::kJoin, "", "JSON object"}, Wrong{LendVerb::kJoin, "[]", "JSON object"},
        Wrong{LendVerb::kJoin, R"({"party":"a","key":"k"})", "device is missing"},
        Wrong{LendVerb::kJoin, R"({"party":1,"key":"k","device":"cpu"})", "party must be a text"},
        Wrong{LendVerb::kJoin, R"({"party":"a","key":"k","device":"cpu","held":7})",
              "held must be a list"},
        Wrong{LendVerb::kJoin, R"({"party":"a","key":"k","device":"cpu","held":[{"lease":"x"}]})",
              "held: bytes is missing"},
        Wrong{LendVerb::kJoin, R"({"party":"a","key":"k","device":"cpu","earlier_joins":["x",1]})",
              "earlier_joins must be a list"},
        Wrong{LendVerb::kJoin, R"({"party":"a","key":"k","device":"cpu","earlier_joins":"x"})",
              "earlier_joins must be a list"},
        Wrong{LendVerb::kHeartbeat, R"({"party":"a"})", "epoch is missing"},
        Wrong{LendVerb::kHeartbeat, R"({"party":"a","epoch":1.5})", "epoch must be a whole number"},
        Wrong{LendVerb::kHeartbeat, R"({"party":"a","epoch":1,"wants":1})", "no field 'wants'"},
        Wrong{LendVerb::kAllocate, R"({"party":"a","epoch":1,"key":"k"})", "bytes is missing"},
        Wrong{LendVerb::kAllocate, R"({"party":"a","epoch":1,"key":"k","bytes":1e3})",
              "bytes must be a whole number"},
        Wrong{LendVerb::kAllocate,
              R"({"party":"a","epoch":1,"key":"k","bytes":18446744073709551615})",
              "bytes must be a whole number"},
        Wrong{LendVerb::kAllocate, R"({"party":"a","epoch":1,"key":"k","bytes":1,"lease":"x"})",
              "no field 'lease'"},
        Wrong{LendVerb::kFree, R"({"party":"a","epoch":1,"key":"k","bytes":1})",
              "lease is missing"}));

TEST(LendingJsonTest, RefusesAnswersThatAreNone) {
  for (const char* body :
       {"", "[]", "{}", R"({"epoch":1})", R"({"epoch":1,"expiry_ms":5})",
        R"({"epoch":1,"expiry_ms":5,"loans":[1]})",
        R"({"epoch":1,"expiry_ms":5,"loans":[{"lease":"a/x","bytes":1,"keep":2}]})",
        R"({"error":{"code":"odd"}})", R"({"error":1})"}) {
    EXPECT_FALSE(parse_lend_answer(body)) << body;
  }
}

}  // namespace
}  // namespace sluice
