#include "sampling/bad_words.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

// The ids below 8 that `words` forbid now.
std::vector<TokenId> forbidden_by(const BadWords& words) {
  std::vector<float> logits(8, 1.0F);
  words.forbid(logits);
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isinf(logits[i])) ids.push_back(static_cast<TokenId>(i));
  }
  return ids;
}

using Ids = std::vector<TokenId>;
using Words = std::vector<Ids>;

TEST(BadWords, AWordOfOneTokenIsAlwaysForbidden) {
  BadWords words;
  EXPECT_TRUE(words.empty());
  words.assign(Words{{3}, {}}, {});
  EXPECT_FALSE(words.empty());
  EXPECT_EQ(forbidden_by(words), Ids{3});
  words.add_output(5);
  EXPECT_EQ(forbidden_by(words), Ids{3});
}

TEST(BadWords, ALongerWordForbidsItsLastTokenBehindTheOthers) {
  BadWords words;
  words.assign(Words{{1, 2, 3}, {2, 4}, {7, 7}}, {});
  EXPECT_EQ(forbidden_by(words), Ids{});
  words.add_output(1);
  EXPECT_EQ(forbidden_by(words), Ids{});
  words.add_output(2);
  EXPECT_EQ(forbidden_by(words), (Ids{3, 4}));
  words.add_output(7);
  EXPECT_EQ(forbidden_by(words), Ids{7});
  words.add_output(2);
  EXPECT_EQ(forbidden_by(words), Ids{4});
}

TEST(BadWords, APreemptedSequenceGoesOnWhereItWas) {
  BadWords words;
  words.assign(Words{{1, 2, 3}}, Ids{5, 1, 2});
  EXPECT_EQ(forbidden_by(words), Ids{3});
  words.assign(Words{{1, 2, 3}}, Ids{2});
  EXPECT_EQ(forbidden_by(words), Ids{});
}

}  // namespace
}  // namespace sluice
