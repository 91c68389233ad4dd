#include "base/partial_match.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(PartialMatch, IsTheLongestProperStartAtTheEnd) {
  EXPECT_EQ(partial_match("text<en", "<end>"), 3U);
  EXPECT_EQ(partial_match("aab", "aabaac"), 3U);
  EXPECT_EQ(partial_match("xaabaa", "aabaac"), 5U);
  EXPECT_EQ(partial_match("<e", "<end>"), 2U);
}

TEST(PartialMatch, AWholePatternIsNoPartOfItself) {
  EXPECT_EQ(partial_match("<end>", "<end>"), 0U);
  EXPECT_EQ(partial_match("aa", "aa"), 1U);
  EXPECT_EQ(partial_match("text", "x"), 0U);
  EXPECT_EQ(partial_match("", "<end>"), 0U);
}

}  // namespace
}  // namespace sluice
