#include "gateway_group/use_elsewhere.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr const char* kDay = "2026-11-25";

GatewayUse use(const std::string& process, const TenantUse& a, const std::string& day = kDay) {
  return {process, day, {{"a", a}}};
}

TEST(UseElsewhereTest, OnlyWhatIsNewIsTaken) {
  UseElsewhere elsewhere;
  // The first look does not know how old the counts are.
  elsewhere.update({{"g", use("p", {10, 100, 2, 7, 3})}}, {"g"}, kDay);
  ASSERT_NE(elsewhere.of("a"), nullptr);
  EXPECT_EQ(elsewhere.of("a")->new_requests, 0);
  EXPECT_EQ(elsewhere.of("a")->calls, 2);
  EXPECT_EQ(elsewhere.of("a")->micro_units, 7);
  EXPECT_EQ(elsewhere.of("a")->micro_units_before, 3);
  EXPECT_EQ(elsewhere.of("b"), nullptr);
  elsewhere.update({{"g", use("p", {15, 130, 1, 8, 3})}}, {"g"}, kDay);
  EXPECT_EQ(elsewhere.of("a")->new_requests, 5);
  EXPECT_EQ(elsewhere.of("a")->new_tokens, 30);
  elsewhere.update({{"g", use("p", {15, 130, 1, 8, 3})}}, {"g"}, kDay);
  EXPECT_EQ(elsewhere.of("a")->new_requests, 0);
  // A new process begins at 0.
  elsewhere.update({{"g", use("q", {4, 40, 0, 8, 3})}}, {"g"}, kDay);
  EXPECT_EQ(elsewhere.of("a")->new_requests, 4);
  EXPECT_EQ(elsewhere.of("a")->new_tokens, 40);
}

TEST(UseElsewhereTest, ADeadGatewayHasNoCallsAndKeepsItsBill) {
  UseElsewhere elsewhere;
  elsewhere.update({{"g", use("p", {1, 1, 5, 7, 3})}, {"h", use("r", {1, 1, 2, 10, 0})}},
                   {"g", "h"}, kDay);
  EXPECT_EQ(elsewhere.of("a")->calls, 7);
  EXPECT_EQ(elsewhere.of("a")->micro_units, 17);
  // Its last words came after the look before.
  elsewhere.update({{"g", use("p", {3, 1, 6, 9, 3})}, {"h", use("r", {1, 1, 2, 10, 0})}}, {"h"},
                   kDay);
  EXPECT_EQ(elsewhere.of("a")->new_requests, 2);
  EXPECT_EQ(elsewhere.of("a")->calls, 2);
  EXPECT_EQ(elsewhere.of("a")->micro_units, 19);
  elsewhere.update({}, {}, kDay);
  EXPECT_EQ(elsewhere.of("a")->calls, 0) << "a tenant without use elsewhere has nothing";
}

TEST(UseElsewhereTest, DaysAndMonths) {
  UseElsewhere elsewhere;
  const auto at = [&](const std::string& day) {
    elsewhere.update({{"g", use("p", {0, 0, 0, 7, 3}, day)}}, {"g"}, kDay);
    return *elsewhere.of("a");
  };
  EXPECT_EQ(at("2026-11-24").micro_units, 0);
  EXPECT_EQ(at("2026-11-24").micro_units_before, 10);
  EXPECT_EQ(at("2026-11-26").micro_units, 7);
  EXPECT_EQ(at("2026-10-25").micro_units_before, 0);
}

TEST(UseElsewhereTest, SumsDoNotOverflow) {
  UseElsewhere elsewhere;
  const TenantUse most{INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
  elsewhere.update({{"g", use("p", {})}, {"h", use("p", {})}}, {"g", "h"}, kDay);
  elsewhere.update({{"g", use("p", most)}, {"h", use("p", most)}}, {"g", "h"}, kDay);
  EXPECT_EQ(elsewhere.of("a")->new_requests, INT64_MAX);
  EXPECT_EQ(elsewhere.of("a")->calls, INT64_MAX);
}

}  // namespace
}  // namespace sluice
