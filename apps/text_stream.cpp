#include "apps/text_stream.h"

#include <utility>

namespace sluice {

Result<TextStream> TextStream::create(const Tokenizer* tokenizer, const SamplingParams& sampling,
                                      std::span<const TokenId> prompt) {
  if (tokenizer == nullptr && !sampling.stop.empty()) {
    return invalid_argument("stop strings need a tokenizer, and the model has none");
  }
  const StopText stop_text =
      sampling.include_stop_str_in_output ? StopText::kInclude : StopText::kExclude;
  ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::create(sampling.stop, stop_text));
  return TextStream(tokenizer, std::move(stops), prompt);
}

TextStream::TextStream(const Tokenizer* tokenizer, StopMatcher stops,
                       std::span<const TokenId> prompt)
    : stops_(std::move(stops)) {
  if (tokenizer == nullptr) return;
  detokenizer_.emplace(*tokenizer, SkipSpecialTokens::kYes);
  detokenizer_->start_after(prompt);
}

bool TextStream::push(std::span<const TokenId> tokens, std::string& out) {
  if (!detokenizer_) return false;
  for (const TokenId token : tokens) {
    decoded_.clear();
    detokenizer_->push(token, decoded_);
    if (stops_.push(decoded_, out)) return true;
  }
  return false;
}

void TextStream::finish(std::string& out) {
  if (!detokenizer_ || stops_.stopped_by()) return;
  decoded_.clear();
  detokenizer_->finish(decoded_);
  if (!stops_.push(decoded_, out)) stops_.finish(out);
}

}  // namespace sluice
