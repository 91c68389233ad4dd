#include "tokenizer/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tokenizer/test_random.h"

namespace sluice {
namespace {

struct Definition {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
};

BpeModel build(const Definition& definition) {
  Vocabulary vocabulary(definition.tokens.size(), definition.tokens.size());
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    EXPECT_TRUE(vocabulary.add(definition.tokens[id], id));
  }
  MergeTable merges(definition.merges.size());
  std::uint32_t rank = 0;
  for (const auto& [left, right] : definition.merges) {
    merges.add(*vocabulary.find(left), *vocabulary.find(right),
               {rank++, *vocabulary.find(left + right)});
  }
  auto model = BpeModel::create(std::move(vocabulary), std::move(merges), {});
  EXPECT_TRUE(model);
  return *std::move(model);
}

// Three letters and random merges of what there is already; some texts merge in two ways.
Definition random_definition(TestRandom& rng) {
  Definition d{{"a", "b", "c"}, {}};
  while (d.merges.size() < 30) {
    const std::string left = d.tokens[rng() % d.tokens.size()];
    const std::string right = d.tokens[rng() % d.tokens.size()];
    if (left.size() + right.size() > 12) continue;
    if (std::find(d.tokens.begin(), d.tokens.end(), left + right) == d.tokens.end()) {
      d.tokens.push_back(left + right);
    }
    d.merges.emplace_back(left, right);
  }
  return d;
}

// The definition of BPE: look for the best pair in the whole text, merge it, start over.
std::vector<std::string> merge_slowly(const Definition& d, const std::string& text) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t i = 0; i < d.merges.size(); ++i) ranks[d.merges[i]] = i;
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  while (true) {
    std::size_t best = symbols.size();
    std::size_t best_rank = d.merges.size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best_rank) {
        best = i;
        best_rank = found->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeModel, EqualsTheDefinition) {
  TestRandom rng(9);
  for (int round = 0; round < 300; ++round) {
    const Definition definition = random_definition(rng);
    const BpeModel model = build(definition);
    BpeScratch scratch;
    scratch.cache.prepare(4096);
    for (const std::size_t length : {1u, 2u, 7u, 20u, 47u, 48u, 49u, 200u}) {
      std::string text;
      for (std::size_t i = 0; i < length; ++i) text += "abc"[rng() % 3];
      const auto expected = merge_slowly(definition, text);
      for (int again = 0; again < 2; ++again) {  // the second time from the cache, when it fits
        std::vector<TokenId> ids;
        ASSERT_TRUE(model.encode(text, scratch, ids));
        std::vector<std::string> symbols;
        for (const TokenId id : ids) symbols.emplace_back(model.vocabulary().text(id));
        ASSERT_EQ(symbols, expected) << text;
      }
    }
  }
}

TEST(BpeModel, LaterDuplicateOfAMergeWins) {
  MergeTable merges(2);
  merges.add(1, 2, {0, 5});
  merges.add(1, 2, {7, 6});
  EXPECT_EQ(merges.find(1, 2).rank, 7u);
  EXPECT_EQ(merges.find(1, 2).merged, 6);
  EXPECT_EQ(merges.find(2, 1).rank, kNoRank);
}

TEST(Vocabulary, RefusesDuplicatesAndAllowsHoles) {
  Vocabulary vocabulary(3, 8);
  EXPECT_TRUE(vocabulary.add("a", 0));
  EXPECT_TRUE(vocabulary.add("", 2));
  EXPECT_FALSE(vocabulary.add("b", 0));
  EXPECT_FALSE(vocabulary.add("a", 1));
  EXPECT_TRUE(vocabulary.add("c", 7));
  EXPECT_EQ(vocabulary.count(), 3u);
  EXPECT_EQ(vocabulary.size(), 8u);
  EXPECT_EQ(vocabulary.text(7), "c");
  EXPECT_EQ(vocabulary.text(6), "");
  EXPECT_EQ(vocabulary.text(8), "");
  EXPECT_EQ(vocabulary.find("c"), 7);
  EXPECT_FALSE(vocabulary.contains(1));
  EXPECT_TRUE(vocabulary.contains(2));
  EXPECT_EQ(vocabulary.find(""), 2);
  EXPECT_EQ(vocabulary.find("b"), std::nullopt);
}

TEST(WordCache, ShortTextsGetNoRoom) {
  WordCache cache;
  cache.prepare(10);
  EXPECT_EQ(cache.place("word"), nullptr);
  cache.prepare(10000);
  EXPECT_NE(cache.place("word"), nullptr);
  EXPECT_EQ(cache.place(std::string(WordCache::kMaxBytes + 1, 'x')), nullptr);
}

}  // namespace
}  // namespace sluice
