// PreTokenizer: the `pre_tokenizer` of a tokenizer.json, a list of steps that cut text into pieces
// and may rewrite the pieces' text. Merges never cross pieces.
// Immutable after it is built; any thread, each with its own scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "tokenizer/regex.h"
#include "tokenizer/split_scanner.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {

// The treatment of the text that a pattern matches (the delimiter) and of the text between matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class MatchSense { kMatches, kInverted };

struct SplitStep {
  // A known pattern, a regular expression, a literal (not empty), or a class of characters.
  std::variant<KnownPattern, Regex, std::string, unicode::ClassMask> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  MatchSense sense = MatchSense::kMatches;
};
struct PrefixSpaceStep {};  // a space before pieces that do not start with one
struct ByteLettersStep {};  // replaces bytes by their letters
struct WordsStep {};        // Whitespace: \w+|[^\w\s]+, the rest removed
struct FixedLengthStep {
  std::size_t characters = 5;
};
enum class PrependScheme { kAlways, kFirst, kNever };
struct MetaspaceStep {
  std::string replacement;
  PrependScheme scheme = PrependScheme::kAlways;
};
using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, ByteLettersStep, WordsStep,
                                      FixedLengthStep, MetaspaceStep>;

struct PreTokenizerScratch {
  StopMeter meter;
  // In and out of run(), as in NormalizerScratch: Metaspace's scheme `first` puts its mark before
  // each piece that begins within these bytes.
  std::size_t first_bytes = 0;
  std::string text;               // the text that the pieces refer to, if a step rewrote it
  std::vector<TextRange> pieces;  // the ranges are never empty
  RegexScratch regex;
  std::string spare;
  std::vector<TextRange> next;
  std::vector<TextRange> matches;
  std::vector<std::pair<TextRange, bool>> parts;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  const std::vector<PreTokenizerStep>& steps() const { return steps_; }

  // Removes a final ByteLettersStep, for a model that reads bytes itself. True if there was one.
  bool take_final_byte_letters();

  // Cuts `text` into scratch.pieces and returns the text they are ranges of: `text` itself or
  // scratch.text. Errors: a regular expression that exceeds its limit, the stop check's.
  // REQUIRES: valid UTF-8.
  Result<std::string_view> run(std::string_view text, PreTokenizerScratch& scratch) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace sluice
