#include "model/gguf_merges.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <unordered_map>

namespace sluice {
namespace {

struct RankedMerge {
  PieceMerge merge;
  double score = 0;
  std::size_t left_length = 0;  // characters
  std::size_t right_length = 0;
};

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

std::vector<PieceMerge> merges_of_pieces(std::span<const ScoredPiece> pieces) {
  std::unordered_map<std::string_view, std::size_t> numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].merges) numbers.emplace(pieces[i].text, i);
  }
  std::vector<RankedMerge> ranked;
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> cuts;  // numbers, and where
  for (const ScoredPiece& piece : pieces) {
    if (!piece.merges) continue;
    cuts.clear();
    for (std::size_t at = 1; at < piece.text.size(); ++at) {
      const auto left = numbers.find(piece.text.substr(0, at));
      if (left == numbers.end()) continue;
      const auto right = numbers.find(piece.text.substr(at));
      if (right != numbers.end()) cuts.emplace_back(left->second, right->second, at);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right, at] : cuts) {
      const PieceMerge merge{piece.text.substr(0, at), piece.text.substr(at)};
      ranked.push_back({merge, piece.score, characters(merge.left), characters(merge.right)});
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedMerge& a, const RankedMerge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  std::vector<PieceMerge> merges;
  merges.reserve(ranked.size());
  for (const RankedMerge& one : ranked) merges.push_back(one.merge);
  return merges;
}

}  // namespace sluice
