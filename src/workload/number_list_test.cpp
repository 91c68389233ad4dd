#include "workload/number_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::Optional;

TEST(NumberList, HasNumbersBetweenCommas) {
  EXPECT_THAT(parse_number_list("0.5,-5,1e3", 3), Optional(ElementsAre(0.5, -5, 1000)));
  EXPECT_THAT(parse_number_list("7", 3), Optional(ElementsAre(7)));
}

TEST(NumberList, OtherTextIsNone) {
  for (const std::string_view text : {"", ",", "1,", ",1", "1,,2", "1,x", "1s", " 1", "1,2,3,4"}) {
    EXPECT_FALSE(parse_number_list(text, 3)) << text;
  }
  EXPECT_FALSE(parse_number_list("1", 0));
}

}  // namespace
}  // namespace sluice
