#include "grammar/token_trie.h"

#include <algorithm>

namespace sluice {

TokenTrie::TokenTrie(std::span<const std::string> tokens, std::int32_t vocab_size)
    : vocab_size_(vocab_size) {
  const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(vocab_size));
  begins_.push_back(0);
  for (std::size_t id = 0; id < count; ++id) {
    const std::string& token = tokens[id];
    if (token.size() <= kMaxTokenBytes) text_ += token;
    if (text_.size() > begins_.back()) ids_.push_back(static_cast<TokenId>(id));
    begins_.push_back(static_cast<std::uint32_t>(text_.size()));
  }
  sort_ids();
  counts_.assign(ids_.size(), 0);

  std::vector<std::uint32_t> path;  // the nodes of the last token, by depth
  std::string_view last;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::string_view token = bytes(ids_[i]);
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(last, token).in1 - last.begin());
    for (std::size_t depth = common; depth < path.size(); ++depth) {
      nodes_[path[depth]].end = static_cast<std::uint32_t>(nodes_.size());
    }
    path.resize(common);
    for (std::size_t depth = common; depth < token.size(); ++depth) {
      Node node;
      node.token = -1;
      node.depth = static_cast<std::uint16_t>(depth + 1);
      node.byte = static_cast<std::uint8_t>(token[depth]);
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(node);
    }
    Node& node = nodes_[path.back()];
    if (node.token < 0) node.token = static_cast<std::int32_t>(i);
    ++counts_[static_cast<std::size_t>(node.token)];
    max_depth_ = std::max(max_depth_, token.size());
    last = token;
  }
  for (const std::uint32_t at : path) nodes_[at].end = static_cast<std::uint32_t>(nodes_.size());
  note_longest();
  list_short_tokens();
}

// By bytes, then by id. Most tokens differ in their first eight bytes, which are compared as a
// number.
void TokenTrie::sort_ids() {
  struct Entry {
    std::uint64_t begin = 0;
    TokenId id = 0;
  };
  std::vector<Entry> entries;
  entries.reserve(ids_.size());
  for (const TokenId id : ids_) {
    const std::string_view text = bytes(id);
    Entry entry{0, id};
    for (std::size_t i = 0; i < 8; ++i) {
      const auto byte = i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
      entry.begin = entry.begin << 8 | byte;
    }
    entries.push_back(entry);
  }
  std::ranges::sort(entries, [&](const Entry& a, const Entry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    const int order = bytes(a.id).compare(bytes(b.id));
    return order < 0 || (order == 0 && a.id < b.id);
  });
  for (std::size_t i = 0; i < entries.size(); ++i) ids_[i] = entries[i].id;
}

// From the last node to the first: a node's children come behind it.
void TokenTrie::note_longest() {
  std::vector<std::uint8_t> below(max_depth_ + 2, 0);  // by depth, of the open subtree
  for (std::size_t i = nodes_.size(); i > 0; --i) {
    Node& node = nodes_[i - 1];
    const std::size_t depth = node.depth;
    std::uint8_t longest = below[depth + 1];
    below[depth + 1] = 0;
    if (node.token >= 0 && longest == 0) {
      longest = static_cast<std::uint8_t>(std::min<std::size_t>(depth, 255));
    }
    node.longest = longest;
    below[depth] = std::max(below[depth], longest);
  }
}

void TokenTrie::list_short_tokens() {
  const std::size_t words = mask_words();
  short_tokens_.assign(static_cast<std::size_t>(kMaxShortBytes) * words, 0);
  for (const TokenId id : ids_) {
    const std::size_t size = bytes(id).size();
    if (size > static_cast<std::size_t>(kMaxShortBytes)) continue;
    short_tokens_[(size - 1) * words + static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
  }
  for (std::size_t i = words; i < short_tokens_.size(); ++i) {
    short_tokens_[i] |= short_tokens_[i - words];
  }
}

}  // namespace sluice
