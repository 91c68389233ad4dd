#include "kv/block_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace sluice {
namespace {

KvIdentity sample_identity() {
  return {.model_digest = "model",
          .adapter_digest = "adapter",
          .weight_dtype = "bf16",
          .kv_dtype = "f16",
          .rope_overrides = "yarn:4",
          .block_size = 4,
          .tenant_salt = "tenant"};
}

// Computed with Python's hashlib from the format in the header.
TEST(BlockHash, KnownAnswers) {
  EXPECT_EQ(block_hash_root(KvIdentity{}), (Hash128{0x3db2cce4b5347342ULL, 0x03b04a8170289486ULL}));
  const Hash128 root = block_hash_root(sample_identity());
  EXPECT_EQ(root, (Hash128{0xa1d0d33709b1f833ULL, 0xbfedfbb0b38b47adULL}));
  BlockHasher hasher(root, 4);
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 2147483647, 9};
  const std::vector<Hash128> hashes = hasher.hash_prompt(prompt);
  ASSERT_EQ(hashes.size(), 2U);  // the ninth token fills no block
  EXPECT_EQ(hashes[0], (Hash128{0xef442d29b11d7ee2ULL, 0x007313d275d764b5ULL}));
  EXPECT_EQ(hashes[1], (Hash128{0x3940a555a72b114aULL, 0x4b68deeccdf2bff5ULL}));
}

TEST(BlockHash, EveryPartOfTheIdentityCounts) {
  const std::function<void(KvIdentity&)> changes[] = {
      [](auto&) {},
      [](auto& id) { id.model_digest += "x"; },
      [](auto& id) { id.adapter_digest += "x"; },
      [](auto& id) { id.weight_dtype = "f32"; },
      [](auto& id) { id.kv_dtype = "f32"; },
      [](auto& id) { id.rope_overrides = ""; },
      [](auto& id) { id.block_size = 8; },
      [](auto& id) { id.tenant_salt = "other"; },
      [](auto& id) { id.tenant_salt = ""; },
      // The same bytes, cut differently.
      [](auto& id) { id.model_digest = "modela", id.adapter_digest = "dapter"; },
      [](auto& id) { id.model_digest = "modeladapter", id.adapter_digest = ""; },
  };
  std::set<Hash128> roots;
  for (const auto& change : changes) {
    KvIdentity identity = sample_identity();
    change(identity);
    roots.insert(block_hash_root(identity));
  }
  EXPECT_EQ(roots.size(), std::size(changes));
}

TEST(BlockHash, TenantsShareNoBlock) {
  KvIdentity other = sample_identity();
  other.tenant_salt = "other";
  const std::vector<TokenId> prompt(64, 7);
  const auto ours = BlockHasher(block_hash_root(sample_identity()), 4).hash_prompt(prompt);
  const auto theirs = BlockHasher(block_hash_root(other), 4).hash_prompt(prompt);
  std::set<Hash128> all(ours.begin(), ours.end());
  all.insert(theirs.begin(), theirs.end());
  EXPECT_EQ(all.size(), 32U);  // nor does a block equal one before it in its own chain
}

TEST(BlockHash, ABlockDependsOnAllTokensBeforeIt) {
  BlockHasher hasher(block_hash_root(sample_identity()), 4);
  const std::vector<TokenId> a = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<TokenId> b = {9, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_NE(hasher.hash_prompt(a)[1], hasher.hash_prompt(b)[1]);
}

TEST(BlockHash, ExtendingEqualsHashingAtOnce) {
  BlockHasher hasher(block_hash_root(sample_identity()), 4);
  std::vector<TokenId> tokens;
  std::vector<Hash128> grown;
  for (TokenId token = 0; token < 41; ++token) {
    tokens.push_back(token);
    hasher.extend(tokens, grown);
    EXPECT_EQ(grown, hasher.hash_prompt(tokens));
  }
  EXPECT_EQ(grown.size(), 10U);
}

}  // namespace
}  // namespace sluice
