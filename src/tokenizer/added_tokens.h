// Finds added tokens in text: the longest one at the leftmost place, then the next, with the flags
// of Hugging Face's AddedToken. Immutable after it is built; any thread.
// Cost: the length of the text times, at worst, the length of the longest token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace sluice {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // skipped when decoding, if asked
  bool normalized = false;   // looked for in normalized text
  bool lstrip = false;       // takes the spaces before it along
  bool rstrip = false;       // and those after it
  bool single_word = false;  // never part of a word
};

// Whether the text of special tokens stands for the tokens, or is text like any other.
enum class SpecialTokenText { kIsToken, kIsText };

class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string text;  // not empty; unique in a matcher
    TokenId id = -1;
    bool special = false;
    bool lstrip = false;
    bool rstrip = false;
    bool single_word = false;
  };
  // A stretch of the text: an added token, or text between them (id -1).
  struct Stretch {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  bool empty() const { return patterns_.empty(); }

  // Appends the stretches of `text` in order. REQUIRES: valid UTF-8.
  void split(std::string_view text, SpecialTokenText special, std::vector<Stretch>& out) const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::int32_t pattern = kNone;
    std::int32_t first_child = kNone;  // children are a linked list
    std::int32_t next_sibling = kNone;
    char byte = 0;
  };

  std::int32_t child(std::int32_t node, char byte) const;
  std::int32_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<Pattern> patterns_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_{};  // the node of each first byte
};

}  // namespace sluice
