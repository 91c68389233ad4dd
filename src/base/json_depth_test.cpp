#include "base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(JsonDeeperThan, CountsBracketsOutsideStrings) {
  EXPECT_FALSE(json_deeper_than("", 0));
  EXPECT_FALSE(json_deeper_than("7", 0));
  EXPECT_TRUE(json_deeper_than("[]", 0));
  EXPECT_FALSE(json_deeper_than("[{},[],{\"a\":1}]", 2));
  EXPECT_TRUE(json_deeper_than("[{},[],{\"a\":[1]}]", 2));
  EXPECT_FALSE(json_deeper_than(R"({"[[[\"[[[":"{{{\\"})", 1));
  EXPECT_TRUE(json_deeper_than(R"({"\\":[[]]})", 2));
  EXPECT_TRUE(json_deeper_than(std::string(1 << 20, '['), kMaxJsonDepth));
}

}  // namespace
}  // namespace sluice
