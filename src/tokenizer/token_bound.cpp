#include "tokenizer/token_bound.h"

#include <algorithm>
#include <variant>

#include "base/utf8.h"

namespace sluice {
namespace {

// How many bytes of a normal form's input may be one byte of its output: a mathematical letter of
// four bytes becomes a Latin one of one byte. Composition alone reaches 3.5 (U+1FBE U+0308 U+0301
// is U+0390).
constexpr std::size_t kNormalFormShrinks = 4;
// U+212A, the Kelvin sign, has three bytes, its lowercase one.
constexpr std::size_t kLowercaseShrinks = 3;

// How many bytes of input may become one byte of output; 0 when any number may.
struct Shrinks {
  std::size_t operator()(const PrependStep&) const { return 1; }
  std::size_t operator()(const ReplaceStep& step) const {
    const auto* literal = std::get_if<std::string>(&step.pattern);
    if (literal == nullptr || step.content.empty()) return 0;
    return (literal->size() + step.content.size() - 1) / step.content.size();
  }
  std::size_t operator()(const NormalForm&) const { return kNormalFormShrinks; }
  std::size_t operator()(const StripStep&) const { return 0; }
  std::size_t operator()(const LowercaseStep&) const { return kLowercaseShrinks; }
  std::size_t operator()(const StripAccentsStep&) const { return 0; }
  std::size_t operator()(const ByteLevelStep&) const { return 1; }
};

bool drops_text(const PreTokenizerStep& step) {
  if (std::holds_alternative<WordsStep>(step)) return true;
  const auto* split = std::get_if<SplitStep>(&step);
  return split != nullptr && split->behavior == SplitBehavior::kRemoved;
}

std::size_t longest_token(const TokenizerDefinition& definition) {
  const Vocabulary& vocabulary = definition.model.vocabulary();
  const bool letters_are_bytes = definition.model.alphabet() == PieceAlphabet::kBytes;
  std::size_t longest = 1;
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(static_cast<TokenId>(id));
    longest = std::max(longest, letters_are_bytes
                                    ? static_cast<std::size_t>(utf8::count_code_points(text))
                                    : text.size());
  }
  for (const AddedToken& token : definition.added_tokens) {
    longest = std::max(longest, token.content.size());
  }
  return longest;
}

}  // namespace

std::size_t max_bytes_per_token(const TokenizerDefinition& definition) {
  if (!definition.model.covers_all_text()) return 0;
  if (std::ranges::any_of(definition.added_tokens,
                          [](const AddedToken& t) { return t.lstrip || t.rstrip; }) ||
      std::ranges::any_of(definition.steps.pre_tokenizer.steps(), drops_text)) {
    return 0;
  }
  std::size_t bytes = longest_token(definition);
  for (const NormalizerStep& step : definition.steps.normalizer.steps()) {
    const std::size_t factor = std::visit(Shrinks{}, step);
    if (factor == 0) return 0;
    bytes *= factor;
  }
  return bytes;
}

}  // namespace sluice
