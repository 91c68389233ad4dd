// Names of KV blocks by content: a chained keyed hash, 128 bits of SHA-256. Two blocks have the
// same name exactly when they hold the same tokens after the same preceding tokens, under the same
// identity: model, adapter content, types, positions and tenant. Known answers in
// block_hash_test.cpp freeze the format, because processes may later compare hashes:
//
//   field(x)  = u64 length of x | x                                        all little-endian
//   root      = 128(SHA-256("sluice/kv-root/1" | field of each part of KvIdentity, in order))
//   hash of i = 128(SHA-256("sluice/kv-block/1" | root | hash of i - 1, zeros for i = 0
//                           | u32 id of each token of block i))
//   128(d)    = first 16 bytes of d: high, then low, each big-endian
//
// Threads: BlockHasher: one object, one thread; prompts are hashed off the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash128.h"
#include "base/sha256.h"
#include "base/token_id.h"

namespace sluice {

// Everything besides tokens that determines a block's keys and values, or which tenants may use
// them.
struct KvIdentity {
  std::string model_digest;    // of weights and configuration
  std::string adapter_digest;  // of the adapter's content, never its name; empty = base model
  std::string weight_dtype;
  std::string kv_dtype;
  std::string rope_overrides;  // set by the operator; empty = as in the checkpoint
  std::int32_t block_size = 0;
  std::string tenant_salt;  // keeps tenants apart; empty = the public domain
};

// The key of all hashes under an identity. Tenants with different salts never share a block. While
// the salt is secret, even an attacker who chooses the tokens cannot make them share one.
Hash128 block_hash_root(const KvIdentity& identity);

class BlockHasher {
 public:
  BlockHasher(Hash128 root, std::int32_t block_size);

  // The name of a full block of block_size `tokens` that follows the block named `parent` (zeros:
  // it is the first block).
  Hash128 hash_block(Hash128 parent, std::span<const TokenId> tokens);
  // The name of a block that is partial, so that a displaced sequence finds it again. REQUIRES: 0 <
  // tokens.size() < block_size, and a root that no other sequence has.
  Hash128 hash_partial(Hash128 parent, std::span<const TokenId> tokens);
  // The names of all full blocks of `tokens`.
  std::vector<Hash128> hash_prompt(std::span<const TokenId> tokens);
  // Appends names until `hashes` covers all full blocks of `tokens`. Existing names are kept.
  void extend(std::span<const TokenId> tokens, std::vector<Hash128>& hashes);
  // Switches to another root; keeps the buffers.
  void set_root(Hash128 root) { root_ = root; }

 private:
  Hash128 hash_tokens(Hash128 parent, std::span<const TokenId> tokens);

  Hash128 root_;
  std::size_t block_size_;
  Sha256 sha256_;
  std::vector<std::byte> message_;
};

}  // namespace sluice
