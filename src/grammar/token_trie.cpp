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
  std::ranges::sort(ids_, [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order < 0 || (order == 0 && a < b);
  });
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
}

}  // namespace sluice
