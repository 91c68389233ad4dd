// TextNormalizer: the `normalizer` of a tokenizer.json, a list of steps from text to text, run
// before the text is split. Immutable after it is built; any thread, each with its own scratch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/regex.h"

namespace sluice {

struct PrependStep {
  std::string text;  // only put before text that is not empty
};
struct ReplaceStep {
  std::variant<std::string, Regex> pattern;  // the string is not empty
  std::string content;
};
struct StripStep {
  bool left = false;
  bool right = false;
};
struct LowercaseStep {};
struct StripAccentsStep {};
struct ByteLevelStep {};  // each byte becomes the letter that stands for it
using NormalizerStep = std::variant<PrependStep, ReplaceStep, NormalForm, StripStep, LowercaseStep,
                                    StripAccentsStep, ByteLevelStep>;

struct NormalizerScratch {
  StopMeter meter;
  // In and out of run(): the bytes at the start of the text that stand for the first character of
  // the whole input, and for what was put before it. 0: the text begins elsewhere.
  std::size_t first_bytes = 0;
  RegexScratch regex;
  NormalFormScratch normal_form;
  std::vector<TextRange> matches;
  std::string spare;
};

class TextNormalizer {
 public:
  TextNormalizer() = default;
  explicit TextNormalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  const std::vector<NormalizerStep>& steps() const { return steps_; }

  // Normalizes `text` in place. Errors: a regular expression that exceeds its limit, text that
  // grows beyond 1 GiB, the stop check's. REQUIRES: valid UTF-8.
  Status run(std::string& text, NormalizerScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// Appends `text` with every match replaced. A replacement stands for its match's last character
// (`first_bytes`), as in the reference.
Status replace_all(const ReplaceStep& step, std::string_view text, NormalizerScratch& scratch,
                   std::string& out);

}  // namespace sluice
