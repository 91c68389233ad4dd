#include "tokenizer/stop_matcher.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include "tokenizer/test_random.h"

namespace sluice {
namespace {

StopMatcher make(std::vector<std::string> stops, StopText text = StopText::kExclude) {
  auto matcher = StopMatcher::create(std::move(stops), text);
  EXPECT_TRUE(matcher);
  return *std::move(matcher);
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBeAStop) {
  StopMatcher matcher = make({"###", "\nUser"});
  std::string out;
  EXPECT_FALSE(matcher.push("abc#", out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(matcher.push("#x", out));
  EXPECT_EQ(out, "abc##x");
  EXPECT_FALSE(matcher.push("\nUs", out));
  EXPECT_EQ(out, "abc##x");
  EXPECT_TRUE(matcher.push("er: hi", out));
  EXPECT_EQ(out, "abc##x");
  EXPECT_EQ(matcher.stopped_by(), 1u);
  EXPECT_TRUE(matcher.push("more", out));
  matcher.finish(out);
  EXPECT_EQ(out, "abc##x");
}

TEST(StopMatcher, MayIncludeTheStop) {
  StopMatcher matcher = make({"END"}, StopText::kInclude);
  std::string out;
  EXPECT_TRUE(matcher.push("the ENDs", out));
  EXPECT_EQ(out, "the END");
}

TEST(StopMatcher, FinishGivesWhatWasHeld) {
  StopMatcher matcher = make({"abcabd"});
  std::string out;
  EXPECT_FALSE(matcher.push("abcabcab", out));
  EXPECT_EQ(out, "abc");
  matcher.finish(out);
  EXPECT_EQ(out, "abcabcab");
}

TEST(StopMatcher, NoStopsPassEverythingAndEmptyOnesAreRefused) {
  StopMatcher matcher = make({});
  std::string out;
  EXPECT_FALSE(matcher.push("anything", out));
  EXPECT_EQ(out, "anything");
  EXPECT_FALSE(StopMatcher::create({"a", ""}, StopText::kExclude));
}

TEST(StopMatcher, TextThatEndsNothingPassesWithItsStops) {
  StopMatcher matcher = make({"aba", "END"});
  std::string out;
  matcher.pass("the END, ab", out);
  EXPECT_EQ(out, "the END, ");
  matcher.pass("a", out);  // complete, and the beginning of the next
  EXPECT_EQ(out, "the END, ab");
  EXPECT_EQ(matcher.stopped_by(), std::nullopt);
  EXPECT_TRUE(matcher.push("ba", out));
  EXPECT_EQ(out, "the END, ab");
  EXPECT_EQ(matcher.stopped_by(), 0u);
  matcher.pass("more", out);
  EXPECT_EQ(out, "the END, ab");
}

// A call may have a thousand choices, each with a copy.
TEST(StopMatcher, CopiesShareTheStrings) {
  const StopMatcher matcher = make(std::vector<std::string>(16, std::string(1024, 'x')));
  constexpr std::size_t kCopies = 1000;
  std::vector<StopMatcher> copies;
  copies.reserve(kCopies);
  const std::size_t before = mallinfo2().uordblks;
  for (std::size_t i = 0; i < kCopies; ++i) copies.push_back(matcher);
  EXPECT_LT((mallinfo2().uordblks - before) / kCopies, 1024U);
}

TEST(StopMatcher, CopiesGoTheirOwnWays) {
  StopMatcher one = make({"stop"});
  std::string out;
  EXPECT_FALSE(one.push("st", out));
  StopMatcher other = one;
  std::string other_out;
  EXPECT_TRUE(one.push("op", out));
  EXPECT_FALSE(other.push("ep", other_out));
  EXPECT_EQ(out, "");
  EXPECT_EQ(other_out, "step");
}

// The obvious way: after each byte, does the text so far end with a stop?
std::string cut_slowly(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const auto& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcher, EqualsTheObviousWayHoweverTextIsCut) {
  TestRandom rng(3);
  const auto word = [&](std::size_t length) {
    std::string text;
    for (; length > 0; --length) text += "aab"[rng() % 3];
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t n = 1 + rng() % 3; n > 0; --n) stops.push_back(word(3 + rng() % 6));
    const std::string text = word(rng() % 40);
    StopMatcher matcher = make(stops);
    std::string out;
    bool stopped = false;
    for (std::size_t at = 0; at < text.size() && !stopped;) {
      const std::size_t length = 1 + rng() % 5;
      stopped = matcher.push(text.substr(at, length), out);
      at += length;
    }
    if (!stopped) matcher.finish(out);
    ASSERT_EQ(out, cut_slowly(text, stops)) << text;
    ASSERT_EQ(stopped, out.size() != text.size()) << text;
  }
}

}  // namespace
}  // namespace sluice
