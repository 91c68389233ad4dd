// The merges of a SentencePiece vocabulary. A GGUF file gives each piece a score, and the pair
// whose piece has the highest score is merged first; a tokenizer.json gives a list of pairs
// instead. The list is that of transformers' converter: each way to cut a piece in two pieces, by
// score, and among equal scores longer left parts first, then longer right parts, then by number.
// Pure; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace sluice {

struct ScoredPiece {
  std::string_view text;
  double score = 0;
  bool merges = true;  // false: a control token or a byte, which no merge makes and none uses
};

struct PieceMerge {
  std::string_view left;
  std::string_view right;
};

// Views of the pieces' texts. A text that is given twice counts once.
std::vector<PieceMerge> merges_of_pieces(std::span<const ScoredPiece> pieces);

}  // namespace sluice
