#include "gateway_group/group_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

GatewayUse some_use() {
  return {"p1", "2026-11-25", {{"a", {1, 2, 3, 4, 5}}, {"b \"x\"", {0, INT64_MAX, 0, 0, 0}}}};
}

TEST(GroupMessageTest, SurvivesItsText) {
  for (const GatewayUse& use : {some_use(), GatewayUse{"p", "2026-01-01", {}}}) {
    const auto again = parse_group_use(group_use_json(use));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, use);
  }
}

TEST(GroupMessageTest, ErrorsNameTheField) {
  const std::string good = group_use_json(some_use());
  const auto error_of = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto parsed = parse_group_use(text);
    EXPECT_FALSE(parsed) << text;
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(error_of("2026-11-25", "25.11.2026"), HasSubstr("day"));
  EXPECT_THAT(error_of("2026-11-25", "2026-11-31"), HasSubstr("day"));
  EXPECT_THAT(error_of("\"requests\":1", "\"requests\":-1"), HasSubstr("tenants[0].requests"));
  EXPECT_THAT(error_of("\"calls\":3", "\"calls\":\"3\""), HasSubstr("tenants[0].calls"));
  EXPECT_THAT(error_of("\"process\":\"p1\",", ""), HasSubstr("process"));
  EXPECT_THAT(error_of("\"day\"", "\"dya\""), HasSubstr("da"));
  EXPECT_THAT(error_of("b \\\"x\\\"", "a"), HasSubstr("twice"));
  EXPECT_THAT(error_of("{", "["), HasSubstr(""));
  EXPECT_FALSE(parse_group_use(std::string(kMaxGroupUse + 1, ' ')));
  EXPECT_FALSE(parse_group_use(R"({"process":"p","day":"2026-11-25","tenants":[1]})"));
}

}  // namespace
}  // namespace sluice
