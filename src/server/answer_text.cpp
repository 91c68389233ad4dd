#include "server/answer_text.h"

#include "server/request_id.h"

namespace sluice {

TextStream::Taken AnswerText::push(std::span<const TokenId> tokens, FinishReason finish,
                                   AnswerParts& out, std::vector<std::int64_t>& offsets) {
  if (!reasoning_ && !calls_) return stream_.push(tokens, out.content, offsets, finish);
  // One by one, so that each token is counted where its text is.
  TextStream::Taken taken;
  for (std::size_t i = 0; i < tokens.size() && !taken.stopped; ++i) {
    const bool last = i + 1 == tokens.size();
    text_.clear();
    const TextStream::Taken one =
        stream_.push(tokens.subspan(i, 1), text_, offsets, last ? finish : FinishReason::kNone);
    const bool inside = reasoning_ && reasoning_->in_reasoning();
    split(text_, std::nullopt, out);
    if (one.tokens > 0) count_reasoning(inside);
    taken.tokens += one.tokens;
    taken.stopped = one.stopped;
  }
  return taken;
}

void AnswerText::count_reasoning(bool inside_before) {
  if (!reasoning_) return;
  if (reasoning_->undecided()) {
    ++undecided_tokens_;
  } else if (inside_before || reasoning_->in_reasoning()) {
    reasoning_tokens_ += 1 + undecided_tokens_;
    undecided_tokens_ = 0;
  } else {
    undecided_tokens_ = 0;
  }
}

void AnswerText::finish(bool stopped, FinishReason reason, AnswerParts& out) {
  text_.clear();
  if (!stopped) stream_.finish(text_);
  split(text_, reason == FinishReason::kLength ? TextEnd::kCut : TextEnd::kComplete, out);
}

// Text goes through the reasoning first; calls are read from what is left.
void AnswerText::split(std::string_view text, std::optional<TextEnd> end, AnswerParts& out) {
  if (reasoning_) {
    after_reasoning_.clear();
    reasoning_->push(text, out.reasoning, after_reasoning_);
    if (end) reasoning_->finish(out.reasoning, after_reasoning_);
    text = after_reasoning_;
  }
  if (!calls_) {
    out.content += text;
    return;
  }
  calls_->push(text, out.content, parsed_);
  if (end) calls_->finish(*end, out.content, parsed_);
  for (ToolCall& call : parsed_) {
    out.calls.push_back({num_calls_++, make_request_id("call_"), std::move(call.name),
                         std::move(call.arguments), call.cut});
  }
  parsed_.clear();
}

}  // namespace sluice
