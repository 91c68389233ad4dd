// The tokens of a model: text by id and id by text, both in constant time. Ids and texts are
// unique; ids without a token are allowed (added tokens may have them, or none).
// All text lies in one string. Filled by one thread, then immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

std::uint64_t hash_bytes(std::string_view bytes);

class Vocabulary {
 public:
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 24;

  // Makes room for `tokens` tokens with ids below `ids`. REQUIRES: neither is above kMaxTokens.
  Vocabulary(std::size_t tokens, std::size_t ids);

  // Errors: an id or a text that was added before, more than 4 GiB of text.
  // REQUIRES: id < ids; no more than `tokens` calls.
  Status add(std::string_view text, std::uint64_t id);

  std::size_t size() const { return spans_.size(); }  // one more than the largest id may be
  std::size_t count() const { return count_; }        // tokens that were added
  bool contains(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < spans_.size() &&
           spans_[static_cast<std::size_t>(id)].size != kAbsent;
  }

  std::optional<TokenId> find(std::string_view text) const { return find(text, hash_bytes(text)); }

  // Looks up many tokens at once: several times as fast, because memory accesses overlap.
  struct Query {
    std::string_view text;
    TokenId id = -1;  // out: -1 when there is no such token
    std::uint64_t hash = 0;
  };
  void find_all(std::span<Query> queries) const;

  // Empty for ids without a token.
  std::string_view text(TokenId id) const;

 private:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;
  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t size = kAbsent;
  };
  struct Slot {
    std::uint32_t hash = 0;
    TokenId id = -1;
    Span text;
  };
  std::optional<TokenId> find(std::string_view text, std::uint64_t hash) const;
  std::string_view text(Span span) const {
    return std::string_view(arena_).substr(span.begin, span.size);
  }

  std::string arena_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;  // open addressing, at most half full
  std::uint64_t mask_ = 0;
  std::size_t count_ = 0;
};

}  // namespace sluice
