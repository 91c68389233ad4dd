#include "loadgen/prompt_maker.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace sluice {
namespace {

constexpr auto kWords = std::to_array<std::string_view>(
    {"the",      "of",     "and",     "to",       "in",      "is",     "you",     "that",
     "it",       "he",     "was",     "for",      "on",      "are",    "with",    "as",
     "his",      "they",   "be",      "at",       "one",     "have",   "this",    "from",
     "or",       "had",    "by",      "but",      "some",    "what",   "there",   "we",
     "can",      "out",    "other",   "were",     "all",     "your",   "when",    "up",
     "use",      "word",   "how",     "said",     "an",      "each",   "she",     "which",
     "do",       "their",  "time",    "if",       "will",    "way",    "about",   "many",
     "then",     "them",   "would",   "write",    "like",    "so",     "these",   "her",
     "long",     "make",   "thing",   "see",      "him",     "two",    "has",     "look",
     "more",     "day",    "could",   "go",       "come",    "did",    "my",      "sound",
     "no",       "most",   "number",  "who",      "over",    "know",   "water",   "than",
     "call",     "first",  "people",  "may",      "down",    "side",   "been",    "now",
     "find",     "any",    "new",     "work",     "part",    "take",   "get",     "place",
     "made",     "live",   "where",   "after",    "back",    "little", "only",    "round",
     "man",      "year",   "came",    "show",     "every",   "good",   "me",      "give",
     "our",      "under",  "name",    "very",     "through", "just",   "form",    "much",
     "great",    "think",  "say",     "help",     "low",     "line",   "before",  "turn",
     "cause",    "same",   "mean",    "differ",   "move",    "right",  "boy",     "old",
     "too",      "does",   "tell",    "sentence", "set",     "three",  "want",    "air",
     "well",     "also",   "play",    "small",    "end",     "put",    "home",    "read",
     "hand",     "port",   "large",   "spell",    "add",     "even",   "land",    "here",
     "must",     "big",    "high",    "such",     "follow",  "act",    "why",     "ask",
     "men",      "change", "went",    "light",    "kind",    "off",    "need",    "house",
     "picture",  "try",    "us",      "again",    "animal",  "point",  "mother",  "world",
     "near",     "build",  "self",    "earth",    "father",  "head",   "stand",   "own",
     "page",     "should", "country", "found",    "answer",  "school", "grow",    "study",
     "still",    "learn",  "plant",   "cover",    "food",    "sun",    "four",    "between",
     "state",    "keep",   "eye",     "never",    "last",    "let",    "thought", "city",
     "tree",     "cross",  "farm",    "hard",     "start",   "might",  "story",   "saw",
     "far",      "sea",    "draw",    "left",     "late",    "run",    "while",   "press",
     "close",    "night",  "real",    "life",     "few",     "north",  "open",    "seem",
     "together", "next",   "white",   "children", "begin",   "got",    "walk",    "example",
     "ease",     "paper",  "group",   "always",   "music",   "those",  "both",    "mark",
     "often",    "letter", "until",   "mile",     "river",   "car",    "feet",    "care",
     "second",   "book",   "carry",   "took",     "science", "eat",    "room"});

// Calls `take` with a uniform number below `bound` for each position of the prompt. A named piece
// depends on its name alone.
template <class Take>
void draw(const WorkloadRequest& request, std::int64_t number, std::uint64_t seed,
          std::uint64_t bound, Take take) {
  constexpr std::uint64_t kOwn = 0xA0761D6478BD642FULL;     // streams of requests
  constexpr std::uint64_t kShared = 0xE7037ED1A0B428DBULL;  // streams of pieces
  const auto stream = [&](std::uint64_t kind, std::uint64_t name) {
    SplitMix64 mix(seed ^ kind);
    return SplitMix64(mix() + name * 0xD1B54A32D192ED03ULL);
  };
  SplitMix64 own = stream(kOwn, static_cast<std::uint64_t>(number));
  std::int32_t left = request.prompt_tokens;
  for (const std::uint64_t name : request.prefix_pieces) {
    SplitMix64 piece = stream(kShared, name);
    const std::int32_t count = std::min(left, kPrefixPieceTokens);
    for (std::int32_t i = 0; i < count; ++i) take(piece.below(bound));
    left -= count;
  }
  for (; left > 0; --left) take(own.below(bound));
}

}  // namespace

PromptMaker::PromptMaker(std::vector<TokenId> ids, std::uint64_t seed)
    : ids_(std::move(ids)), seed_(seed) {}

void PromptMaker::make_ids(const WorkloadRequest& request, std::int64_t number,
                           std::vector<TokenId>& out) {
  CHECK(!ids_.empty());
  out.clear();
  draw(request, number, seed_, ids_.size(), [&](std::uint64_t at) { out.push_back(ids_[at]); });
}

void PromptMaker::make_text(const WorkloadRequest& request, std::int64_t number, std::string& out) {
  out.clear();
  draw(request, number, seed_, kWords.size(), [&](std::uint64_t at) {
    if (!out.empty()) out += ' ';
    out += kWords[at];
  });
}

std::string sample_text() {
  std::string text;
  for (const std::string_view word : kWords) text.append(" ").append(word);
  return text;
}

std::vector<TokenId> middle_ids(std::int32_t vocab_size) {
  CHECK(vocab_size >= 4);
  std::vector<TokenId> ids(static_cast<std::size_t>(vocab_size / 2));
  std::iota(ids.begin(), ids.end(), vocab_size / 4);
  return ids;
}

}  // namespace sluice
