#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {
namespace {

bool is_at(std::string_view text, std::size_t at, unicode::ClassMask mask) {
  return unicode::classes().is(utf8::decode(text, at).value, mask);
}

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_at(text, utf8::previous(text, begin), unicode::kWord)) return false;
  return end == text.size() || !is_at(text, end, unicode::kWord);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {
  roots_.fill(kNone);
  for (std::size_t p = 0; p < patterns_.size(); ++p) {
    std::int32_t* link = &roots_[static_cast<unsigned char>(patterns_[p].text.front())];
    std::int32_t node = *link;
    for (std::size_t i = 0; i < patterns_[p].text.size(); ++i) {
      const char byte = patterns_[p].text[i];
      if (i > 0) {
        const std::int32_t parent = node;
        node = child(parent, byte);
        if (node == kNone) {
          node = static_cast<std::int32_t>(nodes_.size());
          Node fresh;
          fresh.byte = byte;
          fresh.next_sibling = nodes_[static_cast<std::size_t>(parent)].first_child;
          nodes_[static_cast<std::size_t>(parent)].first_child = node;
          nodes_.push_back(fresh);
        }
      } else if (node == kNone) {
        node = *link = static_cast<std::int32_t>(nodes_.size());
        nodes_.emplace_back().byte = byte;
      }
    }
    nodes_[static_cast<std::size_t>(node)].pattern = static_cast<std::int32_t>(p);
  }
}

std::int32_t AddedTokenMatcher::child(std::int32_t node, char byte) const {
  std::int32_t next = nodes_[static_cast<std::size_t>(node)].first_child;
  while (next != kNone && nodes_[static_cast<std::size_t>(next)].byte != byte) {
    next = nodes_[static_cast<std::size_t>(next)].next_sibling;
  }
  return next;
}

std::int32_t AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  std::int32_t node = roots_[static_cast<unsigned char>(text[at])];
  std::int32_t found = kNone;
  while (node != kNone) {
    const std::int32_t pattern = nodes_[static_cast<std::size_t>(node)].pattern;
    if (pattern != kNone) found = pattern;
    if (++at == text.size()) break;
    node = child(node, text[at]);
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text, SpecialTokenText special,
                              std::vector<Stretch>& out) const {
  std::size_t covered = 0;
  for (std::size_t at = 0; !patterns_.empty() && at < text.size();) {
    const std::int32_t found = longest_at(text, at);
    if (found == kNone) {
      ++at;
      continue;
    }
    const Pattern& pattern = patterns_[static_cast<std::size_t>(found)];
    std::size_t begin = at;
    std::size_t end = at + pattern.text.size();
    at = end;  // also behind a match that is rejected below, as in the reference
    if (pattern.special && special == SpecialTokenText::kIsText) continue;
    if (pattern.single_word && !is_single_word(text, begin, end)) continue;
    while (pattern.lstrip && begin > covered) {
      const std::size_t previous = utf8::previous(text, begin);
      if (!is_at(text, previous, unicode::kSpace)) break;
      begin = previous;
    }
    // Inside of what an earlier token's rstrip took there are spaces only: not looked at again.
    if (pattern.rstrip && begin < covered) end = std::max(end, covered);
    while (pattern.rstrip && end < text.size() && is_at(text, end, unicode::kSpace)) {
      end += utf8::decode(text, end).bytes;
    }
    if (covered < begin) out.push_back({covered, begin, -1});
    out.push_back({begin, end, pattern.id});
    covered = end;
  }
  if (covered < text.size()) out.push_back({covered, text.size(), -1});
}

}  // namespace sluice
