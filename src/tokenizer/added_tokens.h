// AddedTokenMatcher: finds added tokens in text: the longest one at the leftmost place, then the
// next, with the flags of Hugging Face's AddedToken. AddedTokens and AddedTokenMatcher read tables
// in an image, which must outlive them. Immutable; any thread.
// Cost: the length of the text times, at worst, the length of the longest token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

// An added token as the files define it.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // decode() can skip it
  bool normalized = false;   // searched in normalized text
  bool lstrip = false;       // absorbs the spaces before it
  bool rstrip = false;       // absorbs the spaces after it
  bool single_word = false;  // never part of a word
};

struct AddedTokenRecord {
  enum Flag : std::uint32_t {
    kSpecial = 1,
    kNormalized = 2,
    kLstrip = 4,
    kRstrip = 8,
    kSingleWord = 16,
  };
  struct Place {
    std::uint32_t begin = 0;
    std::uint32_t bytes = 0;
  };

  TokenId id = -1;
  std::uint32_t flags = 0;
  Place content;
  Place searched;  // the text that stands for the token: normalized if flagged so

  bool has(Flag flag) const { return (flags & flag) != 0; }
};

class AddedTokens {
 public:
  AddedTokens() = default;

  // Errors: ids that do not ascend or are not below `ids`; token texts that are empty, outside of
  // `texts` or not valid UTF-8.
  static Result<AddedTokens> open(std::span<const AddedTokenRecord> records, std::string_view texts,
                                  std::size_t ids);

  std::span<const AddedTokenRecord> records() const { return records_; }
  std::string_view content(const AddedTokenRecord& token) const { return text(token.content); }
  std::string_view searched(const AddedTokenRecord& token) const { return text(token.searched); }

  const AddedTokenRecord* find(TokenId id) const;  // null when there is none

 private:
  std::string_view text(AddedTokenRecord::Place place) const {
    return {texts_ + place.begin, place.bytes};
  }

  std::span<const AddedTokenRecord> records_;
  const char* texts_ = nullptr;
};

// Whether the text of a special token is the token or ordinary text.
enum class SpecialTokenText { kIsToken, kIsText };

// The text in which a token is searched.
enum class SearchedText { kRaw, kNormalized };

// A node of a trie of texts. A node's children are a linked list, after the node in the table.
struct TrieNode {
  static constexpr std::int32_t kNone = -1;
  std::int32_t token = kNone;  // index of the record whose text ends here
  std::int32_t first_child = kNone;
  std::int32_t next_sibling = kNone;
  std::uint32_t byte = 0;
};

class AddedTokenMatcher {
 public:
  // A stretch of the text: an added token, or text between them (id -1).
  struct Stretch {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };

  AddedTokenMatcher() = default;

  // The matcher in these bytes. Error: they are not a trie of exactly the tokens that are searched
  // in such text.
  static Result<AddedTokenMatcher> open(std::span<const std::byte> trie, const AddedTokens& tokens,
                                        SearchedText searched);

  bool empty() const { return roots_ == nullptr; }

  // Appends the stretches of `text` in order. REQUIRES: valid UTF-8.
  void split(std::string_view text, SpecialTokenText special, std::vector<Stretch>& out) const;

 private:
  struct Match {
    std::int32_t token = TrieNode::kNone;
    std::size_t bytes = 0;
  };
  // The longest token at text[at] whose first byte is the root's.
  Match longest_from(std::int32_t root, std::string_view text, std::size_t at) const;

  std::span<const AddedTokenRecord> records_;
  const std::int32_t* roots_ = nullptr;  // the node of each first byte; null: there are no tokens
  std::span<const TrieNode> nodes_;
};

// The tables of these tokens that an image holds.
struct AddedTokenTables {
  std::vector<AddedTokenRecord> records;
  std::string texts;
  std::vector<std::byte> raw_trie;  // of the tokens searched in the original text; empty: none
  std::vector<std::byte> normalized_trie;
};

// `searched`: the text to search for each token. Error: more than 4 GiB of texts.
// REQUIRES: ids ascend; no text is empty, none occurs twice in the same trie.
Result<AddedTokenTables> make_added_token_tables(const std::vector<AddedToken>& tokens,
                                                 const std::vector<std::string>& searched);

}  // namespace sluice
