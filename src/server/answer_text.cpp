#include "server/answer_text.h"

#include "server/request_id.h"

namespace sluice {

TextStream::Taken AnswerText::push(std::span<const TokenId> tokens, FinishReason finish,
                                   AnswerParts& out, std::vector<std::int64_t>& offsets) {
  if (!reasoning_ && !calls_) return stream_.push(tokens, out.content, offsets, finish);
  text_.clear();
  const TextStream::Taken taken = stream_.push(tokens, text_, offsets, finish);
  split(text_, /*ended=*/false, out);
  return taken;
}

void AnswerText::finish(bool stopped, AnswerParts& out) {
  text_.clear();
  if (!stopped) stream_.finish(text_);
  split(text_, /*ended=*/true, out);
}

// Text goes through the reasoning first; calls are read from what is left.
void AnswerText::split(std::string_view text, bool ended, AnswerParts& out) {
  if (reasoning_) {
    after_reasoning_.clear();
    reasoning_->push(text, out.reasoning, after_reasoning_);
    if (ended) reasoning_->finish(out.reasoning, after_reasoning_);
    text = after_reasoning_;
  }
  if (!calls_) {
    out.content += text;
    return;
  }
  calls_->push(text, out.content, parsed_);
  if (ended) calls_->finish(out.content, parsed_);
  for (ToolCall& call : parsed_) {
    out.calls.push_back(
        {num_calls_++, make_request_id("call_"), std::move(call.name), std::move(call.arguments)});
  }
  parsed_.clear();
}

}  // namespace sluice
