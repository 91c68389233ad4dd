// Vocabulary: the tokens of a model, text by id and id by text, both in constant time. Ids and
// texts are unique; ids without a token are allowed (added tokens may have them, or none).
// VocabularyBuilder fills tables in an image; Vocabulary reads them there. A Vocabulary owns
// nothing and does not change: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

std::uint64_t hash_bytes(std::string_view bytes);

// The place of an id's text. All zero: the id has no token.
struct TokenSpan {
  std::uint32_t begin = 0;
  std::uint32_t size_plus_one = 0;
};
// A slot of the hash table, which has open addressing. All zero: the slot is empty.
struct TokenSlot {
  std::uint32_t hash = 0;  // the upper half of the text's hash
  std::uint32_t id_plus_one = 0;
};

class Vocabulary {
 public:
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 24;

  Vocabulary() = default;

  // The vocabulary in these tables. Errors: spans that are not whole characters of `texts`, texts
  // that are not valid UTF-8, a hash table without an empty slot (a search would not end). The
  // entries of the hash table are checked at their use: an entry without a valid id is ignored.
  static Result<Vocabulary> open(std::string_view texts, std::span<const TokenSpan> spans,
                                 std::span<const TokenSlot> slots);

  std::size_t size() const { return spans_.size(); }  // one more than the largest id may be
  bool contains(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < spans_.size() &&
           spans_[static_cast<std::size_t>(id)].size_plus_one != 0;
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
  std::string_view text(TokenId id) const {
    if (!contains(id)) return {};
    const TokenSpan span = spans_[static_cast<std::size_t>(id)];
    return {texts_ + span.begin, span.size_plus_one - 1};
  }

 private:
  friend class VocabularyBuilder;
  Vocabulary(const char* texts, std::span<const TokenSpan> spans, std::span<const TokenSlot> slots)
      : texts_(texts), spans_(spans), slots_(slots.data()), mask_(slots.size() - 1) {}
  std::optional<TokenId> find(std::string_view text, std::uint64_t hash) const;

  const char* texts_ = nullptr;
  std::span<const TokenSpan> spans_;  // by id
  const TokenSlot* slots_ = nullptr;  // a power of two, at most half full
  std::uint64_t mask_ = 0;
};

class VocabularyBuilder {
 public:
  // The slots for this many tokens. REQUIRES: not more than Vocabulary::kMaxTokens.
  static std::size_t slots_for(std::size_t tokens);

  // The tables must be zero and outlive the builder and its view. REQUIRES: texts below 4 GiB,
  // spans for all ids, slots_for(all tokens) slots.
  VocabularyBuilder(std::span<char> texts, std::span<TokenSpan> spans, std::span<TokenSlot> slots);

  // Errors: an id or a text that was added before. REQUIRES: room for the id and the text.
  Status add(std::string_view text, std::uint64_t id);

  std::size_t count() const { return count_; }  // tokens that were added
  const Vocabulary& view() const { return view_; }

 private:
  std::span<char> texts_;
  std::span<TokenSpan> spans_;
  std::span<TokenSlot> slots_;
  std::size_t used_ = 0;  // bytes of texts_
  std::size_t count_ = 0;
  Vocabulary view_;
};

}  // namespace sluice
