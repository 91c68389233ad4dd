#include "kv/block_hash.h"

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::string_view kRootDomain = "sluice/kv-root/1";
constexpr std::string_view kBlockDomain = "sluice/kv-block/1";

void append_little_endian(std::vector<std::byte>& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// The length prefix makes ("ab", "c") and ("a", "bc") differ.
void append_field(std::vector<std::byte>& out, std::string_view text) {
  append_little_endian(out, text.size(), 8);
  append_text(out, text);
}

void append_hash(std::vector<std::byte>& out, Hash128 hash) {
  for (const std::uint64_t word : {hash.high, hash.low}) {
    for (int shift = 56; shift >= 0; shift -= 8)
      out.push_back(static_cast<std::byte>(word >> shift));
  }
}

Hash128 first_128_bits(const Sha256Digest& digest) {
  Hash128 hash;
  for (std::size_t i = 0; i < 8; ++i) {
    hash.high = hash.high << 8 | digest[i];
    hash.low = hash.low << 8 | digest[i + 8];
  }
  return hash;
}

}  // namespace

Hash128 block_hash_root(const KvIdentity& identity) {
  std::vector<std::byte> message;
  append_text(message, kRootDomain);
  append_field(message, identity.model_digest);
  append_field(message, identity.adapter_digest);
  append_field(message, identity.weight_dtype);
  append_field(message, identity.kv_dtype);
  append_field(message, identity.rope_overrides);
  append_little_endian(message, 4, 8);
  append_little_endian(message, static_cast<std::uint32_t>(identity.block_size), 4);
  append_field(message, identity.tenant_salt);
  return first_128_bits(sha256(message));
}

BlockHasher::BlockHasher(Hash128 root, std::int32_t block_size)
    : root_(root), block_size_(static_cast<std::size_t>(block_size)) {
  CHECK(block_size > 0);
  message_.reserve(kBlockDomain.size() + 2 * sizeof(Hash128) + block_size_ * sizeof(TokenId));
}

Hash128 BlockHasher::hash_block(Hash128 parent, std::span<const TokenId> tokens) {
  CHECK(tokens.size() == block_size_);
  return hash_tokens(parent, tokens);
}

Hash128 BlockHasher::hash_partial(Hash128 parent, std::span<const TokenId> tokens) {
  CHECK(!tokens.empty() && tokens.size() < block_size_);
  return hash_tokens(parent, tokens);
}

Hash128 BlockHasher::hash_tokens(Hash128 parent, std::span<const TokenId> tokens) {
  message_.clear();
  append_text(message_, kBlockDomain);
  append_hash(message_, root_);
  append_hash(message_, parent);
  for (const TokenId token : tokens) {
    append_little_endian(message_, static_cast<std::uint32_t>(token), 4);
  }
  sha256_.update(message_);
  return first_128_bits(sha256_.finish());
}

std::vector<Hash128> BlockHasher::hash_prompt(std::span<const TokenId> tokens) {
  std::vector<Hash128> hashes;
  extend(tokens, hashes);
  return hashes;
}

void BlockHasher::extend(std::span<const TokenId> tokens, std::vector<Hash128>& hashes) {
  const std::size_t full_blocks = tokens.size() / block_size_;
  hashes.reserve(full_blocks);
  while (hashes.size() < full_blocks) {
    const Hash128 parent = hashes.empty() ? Hash128{} : hashes.back();
    hashes.push_back(hash_block(parent, tokens.subspan(hashes.size() * block_size_, block_size_)));
  }
}

}  // namespace sluice
