#include "apps/option_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(OptionValuesTest, Integers) {
  EXPECT_EQ(*parse_integer("x", "-3", -3, 7), -3);
  EXPECT_EQ(*parse_integer("x", "7", -3, 7), 7);
  for (const char* bad : {"", "-4", "8", "1.0", " 1", "1 ", "+1", "0x1", "99999999999999999999"}) {
    const auto value = parse_integer("--x", bad, -3, 7);
    ASSERT_FALSE(value) << bad;
    EXPECT_THAT(value.error().message, HasSubstr("--x must be a whole number between -3 and 7"));
  }
}

TEST(OptionValuesTest, Lists) {
  EXPECT_THAT(split_list("a, b,,c"), ElementsAre("a", "b", "", "c"));
  EXPECT_TRUE(split_list("").empty());
  EXPECT_THAT(*parse_percentiles("50, 99.9"), ElementsAre(50, 99.9));
  for (const char* bad : {"50,,90", "101", "-1", "p99", "nan"}) {
    const auto percentiles = parse_percentiles(bad);
    ASSERT_FALSE(percentiles) << bad;
    EXPECT_THAT(percentiles.error().message, HasSubstr("--metric-percentiles"));
  }
}

}  // namespace
}  // namespace sluice
