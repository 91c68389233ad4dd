#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/utf8.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {
namespace {

using Flag = AddedTokenRecord::Flag;
constexpr std::size_t kRoots = 256;
constexpr std::size_t kRootBytes = kRoots * sizeof(std::int32_t);

bool is_at(std::string_view text, std::size_t at, unicode::ClassMask mask) {
  return unicode::classes().is(utf8::decode(text, at).value, mask);
}

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_at(text, utf8::previous(text, begin), unicode::kWord)) return false;
  return end == text.size() || !is_at(text, end, unicode::kWord);
}

std::int32_t child(std::span<const TrieNode> nodes, std::int32_t node, char byte) {
  std::int32_t next = nodes[static_cast<std::size_t>(node)].first_child;
  while (next != TrieNode::kNone &&
         nodes[static_cast<std::size_t>(next)].byte != static_cast<unsigned char>(byte)) {
    next = nodes[static_cast<std::size_t>(next)].next_sibling;
  }
  return next;
}

struct TrieText {
  std::string_view text;
  std::int32_t token;  // the index of the text's record
};

// Empty without texts.
std::vector<std::byte> make_trie(std::span<const TrieText> texts) {
  if (texts.empty()) return {};
  std::array<std::int32_t, kRoots> roots;
  roots.fill(TrieNode::kNone);
  std::vector<TrieNode> nodes;
  const auto add = [&](char byte, std::int32_t next_sibling) {
    nodes.push_back({.next_sibling = next_sibling, .byte = static_cast<unsigned char>(byte)});
    return static_cast<std::int32_t>(nodes.size() - 1);
  };
  for (const TrieText& entry : texts) {
    std::int32_t& root = roots[static_cast<unsigned char>(entry.text.front())];
    if (root == TrieNode::kNone) root = add(entry.text.front(), TrieNode::kNone);
    std::int32_t node = root;
    for (const char byte : entry.text.substr(1)) {
      std::int32_t next = child(nodes, node, byte);
      if (next == TrieNode::kNone) {
        next = add(byte, nodes[static_cast<std::size_t>(node)].first_child);
        nodes[static_cast<std::size_t>(node)].first_child = next;
      }
      node = next;
    }
    nodes[static_cast<std::size_t>(node)].token = entry.token;
  }
  std::vector<std::byte> bytes(kRootBytes + nodes.size() * sizeof(TrieNode));
  std::memcpy(bytes.data(), roots.data(), kRootBytes);
  std::memcpy(bytes.data() + kRootBytes, nodes.data(), nodes.size() * sizeof(TrieNode));
  return bytes;
}

std::uint32_t flags_of(const AddedToken& token) {
  std::uint32_t flags = 0;
  if (token.special) flags |= Flag::kSpecial;
  if (token.normalized) flags |= Flag::kNormalized;
  if (token.lstrip) flags |= Flag::kLstrip;
  if (token.rstrip) flags |= Flag::kRstrip;
  if (token.single_word) flags |= Flag::kSingleWord;
  return flags;
}

// Whether each node is a root or has exactly one parent, so that the nodes form trees.
bool are_trees(const std::int32_t* roots, std::span<const TrieNode> nodes) {
  std::vector<bool> seen(nodes.size());
  const auto visit = [&](std::int32_t node) {
    if (node < 0 || static_cast<std::size_t>(node) >= nodes.size()) return false;
    if (seen[static_cast<std::size_t>(node)]) return false;
    seen[static_cast<std::size_t>(node)] = true;
    return true;
  };
  for (std::size_t byte = 0; byte < kRoots; ++byte) {
    if (roots[byte] == TrieNode::kNone) continue;
    if (!visit(roots[byte])) return false;
    const TrieNode& root = nodes[static_cast<std::size_t>(roots[byte])];
    if (root.byte != byte || root.next_sibling != TrieNode::kNone) return false;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].first_child == TrieNode::kNone) continue;
    // Siblings have different bytes, so that a list of them is short.
    std::array<bool, kRoots> bytes{};
    const auto parent = static_cast<std::int32_t>(i);
    for (std::int32_t at = nodes[i].first_child; at != TrieNode::kNone;
         at = nodes[static_cast<std::size_t>(at)].next_sibling) {
      if (at <= parent || !visit(at)) return false;
      const std::uint32_t byte = nodes[static_cast<std::size_t>(at)].byte;
      if (byte >= kRoots || bytes[byte]) return false;
      bytes[byte] = true;
    }
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

// Whether the token's text leads to the node that names it.
bool leads_to_token(const std::int32_t* roots, std::span<const TrieNode> nodes,
                    std::string_view text, std::size_t token) {
  std::int32_t node = roots[static_cast<unsigned char>(text.front())];
  for (const char byte : text.substr(1)) {
    if (node == TrieNode::kNone) return false;
    node = child(nodes, node, byte);
  }
  return node != TrieNode::kNone &&
         nodes[static_cast<std::size_t>(node)].token == static_cast<std::int32_t>(token);
}

}  // namespace

Result<AddedTokens> AddedTokens::open(std::span<const AddedTokenRecord> records,
                                      std::string_view texts, std::size_t ids) {
  TokenId last = -1;
  for (const AddedTokenRecord& record : records) {
    if (record.id <= last || static_cast<std::size_t>(record.id) >= ids) {
      return invalid_argument("the ids of added tokens are not in order");
    }
    last = record.id;
    for (const auto place : {record.content, record.searched}) {
      if (place.bytes == 0 || place.begin > texts.size() ||
          place.bytes > texts.size() - place.begin ||
          utf8::find_invalid(texts.substr(place.begin, place.bytes))) {
        return invalid_argument("the text of an added token is no text");
      }
    }
  }
  AddedTokens tokens;
  tokens.records_ = records;
  tokens.texts_ = texts.data();
  return tokens;
}

const AddedTokenRecord* AddedTokens::find(TokenId id) const {
  const auto at = std::lower_bound(
      records_.begin(), records_.end(), id,
      [](const AddedTokenRecord& record, TokenId wanted) { return record.id < wanted; });
  return at != records_.end() && at->id == id ? &*at : nullptr;
}

Result<AddedTokenTables> make_added_token_tables(const std::vector<AddedToken>& tokens,
                                                 const std::vector<std::string>& searched) {
  AddedTokenTables tables;
  std::vector<TrieText> raw;
  std::vector<TrieText> normalized;
  const auto append = [&](std::string_view text) {
    const auto begin = static_cast<std::uint32_t>(tables.texts.size());
    tables.texts += text;
    return AddedTokenRecord::Place{begin, static_cast<std::uint32_t>(text.size())};
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const AddedToken& token = tokens[i];
    AddedTokenRecord record{token.id, flags_of(token), append(token.content), {}};
    record.searched = searched[i] == token.content ? record.content : append(searched[i]);
    tables.records.push_back(record);
    (token.normalized ? normalized : raw).push_back({searched[i], static_cast<std::int32_t>(i)});
  }
  if (tables.texts.size() > UINT32_MAX) {
    return unsupported("added_tokens: more than 4 GiB of texts");
  }
  tables.raw_trie = make_trie(raw);
  tables.normalized_trie = make_trie(normalized);
  return tables;
}

Result<AddedTokenMatcher> AddedTokenMatcher::open(std::span<const std::byte> trie,
                                                  const AddedTokens& tokens,
                                                  SearchedText searched) {
  const auto damaged = [] { return invalid_argument("the search of added tokens is damaged"); };
  const auto records = tokens.records();
  const auto is_searched = [&](const AddedTokenRecord& record) {
    return record.has(Flag::kNormalized) == (searched == SearchedText::kNormalized);
  };
  if (trie.empty()) {
    if (std::ranges::any_of(records, is_searched)) return damaged();
    return AddedTokenMatcher();
  }
  if (trie.size() < kRootBytes || (trie.size() - kRootBytes) % sizeof(TrieNode) != 0) {
    return damaged();
  }
  AddedTokenMatcher matcher;
  matcher.records_ = records;
  matcher.roots_ = reinterpret_cast<const std::int32_t*>(trie.data());
  matcher.nodes_ = {reinterpret_cast<const TrieNode*>(trie.data() + kRootBytes),
                    (trie.size() - kRootBytes) / sizeof(TrieNode)};
  if (matcher.nodes_.size() > INT32_MAX || !are_trees(matcher.roots_, matcher.nodes_)) {
    return damaged();
  }
  // Each of the tokens has its own node, and no other node names a token.
  std::ptrdiff_t count = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!is_searched(records[i])) continue;
    ++count;
    if (!leads_to_token(matcher.roots_, matcher.nodes_, tokens.searched(records[i]), i)) {
      return damaged();
    }
  }
  if (std::ranges::count_if(matcher.nodes_, [](const TrieNode& node) {
        return node.token != TrieNode::kNone;
      }) != count) {
    return damaged();
  }
  return matcher;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_from(std::int32_t node, std::string_view text,
                                                         std::size_t at) const {
  Match found;
  for (std::size_t bytes = 1; node != TrieNode::kNone; ++bytes) {
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token != TrieNode::kNone) found = {token, bytes};
    if (at + bytes == text.size()) break;
    node = child(nodes_, node, text[at + bytes]);
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text, SpecialTokenText special,
                              std::vector<Stretch>& out) const {
  std::size_t covered = 0;
  for (std::size_t at = 0; !empty() && at < text.size();) {
    const std::int32_t root = roots_[static_cast<unsigned char>(text[at])];
    const Match found = root == TrieNode::kNone ? Match{} : longest_from(root, text, at);
    if (found.token == TrieNode::kNone) {
      ++at;
      continue;
    }
    const AddedTokenRecord& token = records_[static_cast<std::size_t>(found.token)];
    std::size_t begin = at;
    std::size_t end = at + found.bytes;
    at = end;  // also after a match that is rejected below, as in the reference
    if (token.has(Flag::kSpecial) && special == SpecialTokenText::kIsText) continue;
    if (token.has(Flag::kSingleWord) && !is_single_word(text, begin, end)) continue;
    // The text that an earlier token's rstrip absorbed has only spaces and is not searched again.
    if (token.has(Flag::kRstrip) && begin < covered) end = std::max(end, covered);
    if (token.has(Flag::kLstrip)) begin = std::max(begin, covered);
    while (token.has(Flag::kLstrip) && begin > covered) {
      const std::size_t previous = utf8::previous(text, begin);
      if (!is_at(text, previous, unicode::kSpace)) break;
      begin = previous;
    }
    while (token.has(Flag::kRstrip) && end < text.size() && is_at(text, end, unicode::kSpace)) {
      end += utf8::decode(text, end).bytes;
    }
    if (begin >= end) continue;  // all of it was absorbed: no token, as in the reference
    if (covered < begin) out.push_back({covered, begin, -1});
    out.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered < text.size()) out.push_back({covered, text.size(), -1});
}

}  // namespace sluice
