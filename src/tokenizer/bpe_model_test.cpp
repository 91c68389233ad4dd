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

// The tables of a model, outside of an image.
struct Tables {
  std::vector<char> texts;
  std::vector<TokenSpan> spans;
  std::vector<TokenSlot> slots;
  std::vector<MergeSlot> merge_slots;
  VocabularyBuilder vocabulary;
  MergeTableBuilder merges;

  Tables(std::size_t text_bytes, std::size_t tokens, std::size_t ids, std::size_t merge_count)
      : texts(text_bytes),
        spans(ids),
        slots(VocabularyBuilder::slots_for(tokens)),
        merge_slots(MergeTableBuilder::slots_for(merge_count)),
        vocabulary(texts, spans, slots),
        merges(merge_slots, ids) {}
};

BpeModel build(const Definition& definition, Tables& tables) {
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    EXPECT_TRUE(tables.vocabulary.add(definition.tokens[id], id));
  }
  const Vocabulary& vocabulary = tables.vocabulary.view();
  std::uint32_t rank = 0;
  for (const auto& [left, right] : definition.merges) {
    tables.merges.add(*vocabulary.find(left), *vocabulary.find(right),
                      {rank++, *vocabulary.find(left + right)});
  }
  auto model = BpeModel::create(vocabulary, tables.merges.view(), {});
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
    const std::size_t tokens = definition.tokens.size();
    Tables tables(tokens * 12, tokens, tokens, definition.merges.size());
    const BpeModel model = build(definition, tables);
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
  Tables tables(0, 0, 8, 2);
  tables.merges.add(1, 2, {0, 5});
  tables.merges.add(1, 2, {7, 6});
  const MergeTable& merges = tables.merges.view();
  EXPECT_EQ(merges.find(1, 2).rank, 7u);
  EXPECT_EQ(merges.find(1, 2).merged, 6);
  EXPECT_EQ(merges.find(2, 1).rank, kNoRank);
}

TEST(MergeTable, IdsOutOfRangeReadAsTheLastOne) {
  Tables tables(0, 0, 8, 2);
  tables.merges.add(1, 2, {0, 5});
  const auto narrower = MergeTable::open(tables.merge_slots, 5);
  ASSERT_TRUE(narrower);
  EXPECT_EQ(narrower->find(1, 2).merged, 4);
}

TEST(MergeTable, RefusesTablesInWhichASearchWouldNotEnd) {
  std::vector<MergeSlot> full(4, MergeSlot{.key = 1, .rank_plus_one = 1, .merged = 0});
  EXPECT_FALSE(MergeTable::open(full, 5));
  full[2] = {};
  EXPECT_TRUE(MergeTable::open(full, 5));
  EXPECT_FALSE(MergeTable::open(std::span(full).first(3), 5));
  EXPECT_FALSE(MergeTable::open({}, 5));
}

TEST(Vocabulary, RefusesDuplicatesAndAllowsHoles) {
  Tables tables(3, 3, 8, 0);
  VocabularyBuilder& builder = tables.vocabulary;
  EXPECT_TRUE(builder.add("a", 0));
  EXPECT_TRUE(builder.add("", 2));
  EXPECT_FALSE(builder.add("b", 0));
  EXPECT_FALSE(builder.add("a", 1));
  EXPECT_TRUE(builder.add("c", 7));
  EXPECT_EQ(builder.count(), 3u);
  const Vocabulary& vocabulary = builder.view();
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

TEST(Vocabulary, RefusesSpansThatAreNoCharacters) {
  const std::string_view texts = "a\u00e9";  // three bytes
  const std::vector<TokenSlot> slots(2);
  const auto opens = [&](TokenSpan span) {
    return Vocabulary::open(texts, std::vector{span}, slots).has_value();
  };
  EXPECT_TRUE(opens({0, 0}));
  EXPECT_TRUE(opens({0, 4}));
  EXPECT_TRUE(opens({1, 3}));
  EXPECT_TRUE(opens({3, 1}));
  EXPECT_FALSE(opens({0, 5}));
  EXPECT_FALSE(opens({0, 3}));
  EXPECT_FALSE(opens({2, 2}));
  EXPECT_FALSE(opens({4, 1}));
  EXPECT_FALSE(opens({0xFFFFFFFF, 0xFFFFFFFF}));
  EXPECT_FALSE(Vocabulary::open("\xE9", {}, slots));
}

TEST(Vocabulary, IgnoresSlotsThatNameNoId) {
  const std::vector<TokenSpan> spans = {{0, 2}, {}};
  std::vector<TokenSlot> slots(4);
  const auto hash = hash_bytes("a");
  TokenSlot& slot = slots[hash & 3];
  for (const std::uint32_t id_plus_one : {1u, 2u, 3u, 0xFFFFFFFFu}) {
    slot = {static_cast<std::uint32_t>(hash >> 32), id_plus_one};
    const auto vocabulary = Vocabulary::open("a", spans, slots);
    ASSERT_TRUE(vocabulary);
    EXPECT_EQ(vocabulary->find("a"), id_plus_one == 1 ? std::optional(0) : std::nullopt);
  }
  std::ranges::fill(slots, TokenSlot{1, 1});
  EXPECT_FALSE(Vocabulary::open("a", spans, slots));
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
