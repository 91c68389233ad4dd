#include "loadgen/prompt_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace sluice {
namespace {

constexpr std::int32_t kPiece = kPrefixPieceTokens;

std::vector<TokenId> ids_of(PromptMaker maker, const WorkloadRequest& request,
                            std::int64_t number) {
  std::vector<TokenId> out;
  maker.make_ids(request, number, out);
  return out;
}

PromptMaker maker_of(std::uint64_t seed) { return PromptMaker(middle_ids(32000), seed); }

WorkloadRequest prompt_of(std::int32_t tokens, std::vector<std::uint64_t> pieces = {}) {
  return {Duration(0), tokens, 1, std::move(pieces)};
}

std::ptrdiff_t common_tokens(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

TEST(PromptMaker, HasTheExactLengthAndOnlyGivenIds) {
  for (const std::int32_t tokens : {1, 2, 511, 512, 513, 5000}) {
    const auto ids = ids_of(maker_of(1), prompt_of(tokens), 0);
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(tokens));
    EXPECT_TRUE(
        std::all_of(ids.begin(), ids.end(), [](TokenId id) { return id >= 8000 && id < 24000; }));
  }
}

TEST(PromptMaker, SeedAndNumberAloneDecide) {
  const auto request = prompt_of(100);
  EXPECT_EQ(ids_of(maker_of(7), request, 3), ids_of(maker_of(7), request, 3));
  EXPECT_LT(common_tokens(ids_of(maker_of(7), request, 3), ids_of(maker_of(7), request, 4)), 3);
  EXPECT_LT(common_tokens(ids_of(maker_of(7), request, 3), ids_of(maker_of(8), request, 3)), 3);
}

TEST(PromptMaker, EqualPiecesGiveEqualIdsAndNothingMore) {
  const auto a = ids_of(maker_of(1), prompt_of(3 * kPiece, {10, 20}), 0);
  const auto b = ids_of(maker_of(1), prompt_of(4 * kPiece, {10, 20, 30}), 1);
  const auto c = ids_of(maker_of(1), prompt_of(3 * kPiece, {10, 21}), 2);
  EXPECT_GE(common_tokens(a, b), 2 * kPiece);
  EXPECT_LT(common_tokens(a, b), 2 * kPiece + 3);
  EXPECT_GE(common_tokens(a, c), kPiece);
  EXPECT_LT(common_tokens(a, c), kPiece + 3);
  // A prompt may end within a piece.
  const auto cut = ids_of(maker_of(1), prompt_of(kPiece + 7, {10, 20}), 5);
  EXPECT_EQ(common_tokens(cut, a), kPiece + 7);
}

TEST(PromptMaker, TextsHaveAsManyWords) {
  PromptMaker maker({}, 1);
  std::string text;
  maker.make_text(prompt_of(50), 0, text);
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 49);
  std::string again;
  maker.make_text(prompt_of(50), 1, again);
  EXPECT_NE(text, again);
}

TEST(PromptMaker, WordsOfTheSampleAreDistinct) {
  const std::string text = sample_text();
  std::set<std::string> words;
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    const std::size_t end = std::min(text.find(' ', at + 1), text.size());
    EXPECT_TRUE(words.insert(text.substr(at, end - at)).second) << text.substr(at, end - at);
    at = end;
  }
  EXPECT_GE(count, 250U);
}

}  // namespace
}  // namespace sluice
