#include "grammar/marked_text.h"

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace sluice {
namespace {

std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::decode(text, at);
    out.push_back(static_cast<char32_t>(point.value));
    at += point.bytes;
  }
  return out;
}

// The number of characters at the start of `marker` that the text ends with, once `next` follows
// the first `matched` ones.
std::size_t matched_after(std::u32string_view marker, std::size_t matched, char32_t next) {
  const std::u32string text = std::u32string(marker.substr(0, matched)) + next;
  std::size_t length = text.size();
  while (!marker.starts_with(std::u32string_view(text).substr(text.size() - length))) --length;
  return length;
}

}  // namespace

ExprId text_with_marker(Grammar& grammar, std::string_view marker, ExprId behind,
                        WithoutMarker without) {
  CHECK(!marker.empty());
  if (marker.find(kSpecialTokenMark) != std::string_view::npos) {
    const ExprId text = grammar.repeat(grammar.any_character(), 0, -1);
    const ExprId rest = grammar.sequence({grammar.literal(marker), behind});
    return grammar.sequence(
        {text, without == WithoutMarker::kAllowed ? grammar.optional(rest) : rest});
  }
  // A rule for each part of the marker that the text may end with.
  const std::u32string points = code_points(marker);
  std::vector<RuleId> rules;
  for (std::size_t i = 0; i < points.size(); ++i) rules.push_back(grammar.add_rule("text"));
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::vector<ExprId> ways;
    CodePointSet known;
    for (const char32_t next : points) {
      const auto c = static_cast<std::uint32_t>(next);
      if (!intersection(normalized(known), {{c, c}}).empty()) continue;
      known.push_back({c, c});
      const std::size_t matched = matched_after(points, i, next);
      const ExprId then = matched == points.size() ? behind : grammar.call(rules[matched]);
      ways.push_back(grammar.sequence({grammar.one_of({{c, c}}), then}));
    }
    ways.push_back(grammar.sequence(
        {grammar.one_of(complement(normalized(known))), grammar.call(rules.front())}));
    if (without == WithoutMarker::kAllowed) ways.push_back(grammar.empty());
    grammar.define(rules[i], grammar.choice(std::move(ways)));
  }
  return grammar.call(rules.front());
}

}  // namespace sluice
