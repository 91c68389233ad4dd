#include "gateway/admin_action.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(AdminAction, ReadsEachAction) {
  const auto stop =
      parse_admin_action(R"({"action":"stop","tenant":"a","function":"ft:demo:a:poet"})");
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->verb, AdminVerb::kStop);
  EXPECT_EQ(stop->tenant, "a");
  EXPECT_EQ(stop->function, "ft:demo:a:poet");
  const auto load = parse_admin_action(R"({"action":"load","backbone":"demo"})");
  ASSERT_TRUE(load);
  EXPECT_EQ(load->verb, AdminVerb::kLoad);
  EXPECT_EQ(load->backbone, "demo");
  EXPECT_EQ(parse_admin_action(R"({"action":"unload","backbone":"demo"})")->verb,
            AdminVerb::kUnload);
  EXPECT_EQ(parse_admin_action(R"({"action":"reload"})")->verb, AdminVerb::kReload);
}

TEST(AdminAction, WrongBodiesNameTheField) {
  const auto fault = [](std::string_view body) {
    const auto action = parse_admin_action(body);
    if (action) return std::string("accepted");
    EXPECT_EQ(action.error().status, 400) << body;
    return action.error().param;
  };
  EXPECT_EQ(fault("{}"), "action");
  EXPECT_EQ(fault(R"({"action":"drop"})"), "action");
  EXPECT_EQ(fault(R"({"action":7})"), "action");
  EXPECT_EQ(fault(R"({"action":"stop","function":"f"})"), "tenant");
  EXPECT_EQ(fault(R"({"action":"stop","tenant":"a"})"), "function");
  EXPECT_EQ(fault(R"({"action":"load"})"), "backbone");
  EXPECT_EQ(fault(R"({"action":"reload","backbone":"demo"})"), "backbone");
  EXPECT_EQ(fault(R"({"action":"load","backbone":"demo","tenant":"a"})"), "tenant");
  EXPECT_EQ(fault(R"({"action":"reload","force":true})"), "force");
  EXPECT_EQ(fault(R"({"action":"load","backbone":")" + std::string(2000, 'x') + "\"}"), "backbone");
  EXPECT_EQ(fault("[]"), "");
}

TEST(AdminAction, ItsFieldsAreKnown) {
  const BodyFields fields = admin_action_fields();
  ASSERT_EQ(fields.fields.size(), 4U);
  EXPECT_EQ(fields.fields[0].name, "action");
  EXPECT_TRUE(fields.fields[0].required);
  EXPECT_FALSE(fields.fields[3].required);  // of some actions
}

}  // namespace
}  // namespace sluice
