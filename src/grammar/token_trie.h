// TokenTrie: the vocabulary of a model as a tree of bytes, in one array: a node is followed by the
// nodes below it. Constrained decoding walks it to find all tokens that a grammar allows.
// Tokens without bytes (special tokens, holes) are in no place of it.
// Immutable: any thread. Memory: 12 bytes a node; 128,000 tokens have about 300,000 nodes; and
// kMaxShortBytes masks with a bit for each id.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace sluice {

class TokenTrie {
 public:
  struct Node {
    std::uint32_t end = 0;    // index behind the last node below this one
    std::int32_t token = 0;   // the token whose bytes end here, as an index in ids_; -1: none
    std::uint16_t depth = 0;  // from 1
    std::uint8_t byte = 0;
    std::uint8_t longest = 0;  // bytes of the longest token here or below; 255: or more
  };
  static constexpr std::int32_t kMaxShortBytes = 64;
  static constexpr std::size_t kMaxTokenBytes = 4096;  // longer tokens are left out

  // `tokens` by id; an empty text leaves the id out. `vocab_size`: of the model, which may have
  // more ids than the tokenizer.
  TokenTrie(std::span<const std::string> tokens, std::int32_t vocab_size);

  std::int32_t vocab_size() const { return vocab_size_; }
  // Words of a mask with a bit for each id.
  std::size_t mask_words() const { return (static_cast<std::size_t>(vocab_size_) + 31) / 32; }
  std::span<const Node> nodes() const { return nodes_; }
  std::size_t max_depth() const { return max_depth_; }
  // A bit for each id whose text has at most `bytes` bytes. REQUIRES: 0 < bytes <= kMaxShortBytes.
  std::span<const std::uint32_t> short_tokens(std::int32_t bytes) const {
    return std::span(short_tokens_)
        .subspan(static_cast<std::size_t>(bytes - 1) * mask_words(), mask_words());
  }
  // The bytes of a token; empty for tokens that are left out.
  std::string_view bytes(TokenId id) const {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at + 1 >= begins_.size()) return {};
    return std::string_view(text_).substr(begins_[at], begins_[at + 1] - begins_[at]);
  }
  // Ids that have a text here, or none; the texts of all, one behind the other; and where each one
  // begins, by id, and one more.
  std::size_t num_tokens() const { return begins_.size() - 1; }
  std::string_view text() const { return text_; }
  std::span<const std::uint32_t> begins() const { return begins_; }
  // The tokens of a node: several ids may have the same bytes. REQUIRES: node.token >= 0.
  std::span<const TokenId> ids(const Node& node) const {
    return std::span(ids_).subspan(
        static_cast<std::size_t>(node.token),
        static_cast<std::size_t>(counts_[static_cast<std::size_t>(node.token)]));
  }

 private:
  void sort_ids();
  void list_short_tokens();
  void note_longest();

  std::int32_t vocab_size_ = 0;
  std::size_t max_depth_ = 0;
  std::string text_;
  std::vector<std::uint32_t> begins_;  // by id, and one more
  std::vector<Node> nodes_;
  std::vector<TokenId> ids_;                 // in order of bytes
  std::vector<std::uint32_t> short_tokens_;  // [bytes - 1][words]
  std::vector<std::int32_t> counts_;  // for the first id of each text: the ids with that text
};

}  // namespace sluice
