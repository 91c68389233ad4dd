#include "front/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace sluice {
Result<TextStream> TextStream::create(const Tokenizer* tokenizer, const SamplingParams& sampling,
                                      std::span<const TokenId> prompt, SkipSpecialTokens skip) {
  if (tokenizer == nullptr && !sampling.stop.empty()) {
    return invalid_argument("stop strings need a tokenizer, and the model has none");
  }
  const StopText stop_text =
      sampling.include_stop_str_in_output ? StopText::kInclude : StopText::kExclude;
  ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::create(sampling.stop, stop_text));
  return TextStream(tokenizer, std::move(stops), sampling, prompt, skip);
}

TextStream::TextStream(const Tokenizer* tokenizer, StopMatcher stops,
                       const SamplingParams& sampling, std::span<const TokenId> prompt,
                       SkipSpecialTokens skip)
    : stops_(std::move(stops)),
      before_stops_(sampling.min_tokens),
      includes_stop_(sampling.include_stop_str_in_output) {
  if (tokenizer == nullptr) return;
  detokenizer_.emplace(*tokenizer, skip);
  detokenizer_->start_after(prompt);
}

TextStream::Taken TextStream::push(std::span<const TokenId> tokens, std::string& out,
                                   FinishReason finish) {
  return take(tokens, out, nullptr, finish);
}

TextStream::Taken TextStream::push(std::span<const TokenId> tokens, std::string& out,
                                   std::vector<std::int64_t>& offsets, FinishReason finish) {
  return take(tokens, out, &offsets, finish);
}

TextStream::Taken TextStream::take(std::span<const TokenId> tokens, std::string& out,
                                   std::vector<std::int64_t>* offsets, FinishReason finish) {
  if (stops_.stopped_by()) return {0, true};
  std::size_t taken = 0;
  for (const TokenId token : tokens) {
    ++taken;
    if (offsets != nullptr) offsets->push_back(code_points_);
    if (!detokenizer_) continue;
    if (finish == FinishReason::kStop && taken == tokens.size() && !includes_stop_) break;
    decoded_.clear();
    detokenizer_->push(token, decoded_);
    code_points_ += utf8::count_code_points(decoded_);
    if (before_stops_ > 0) {
      --before_stops_;
      stops_.pass(decoded_, out);
    } else if (stops_.push(decoded_, out)) {
      return {taken, true};
    }
  }
  return {taken, false};
}

void TextStream::finish(std::string& out) {
  if (!detokenizer_ || stops_.stopped_by()) return;
  decoded_.clear();
  detokenizer_->finish(decoded_);
  if (!stops_.push(decoded_, out)) stops_.finish(out);
}

}  // namespace sluice
