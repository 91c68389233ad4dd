#include "server/answer_text.h"

#include <utility>

#include "server/request_id.h"

namespace sluice {

TextStream::Taken AnswerText::push(std::span<const TokenId> tokens, FinishReason finish,
                                   std::string& content, std::vector<ToolCallAnswer>& calls,
                                   std::vector<std::int64_t>& offsets) {
  if (!calls_) return stream_.push(tokens, content, offsets, finish);
  text_.clear();
  const TextStream::Taken taken = stream_.push(tokens, text_, offsets, finish);
  calls_->push(text_, content, parsed_);
  add_calls(calls);
  return taken;
}

void AnswerText::finish(bool stopped, std::string& content, std::vector<ToolCallAnswer>& calls) {
  text_.clear();
  if (!stopped) stream_.finish(calls_ ? text_ : content);
  if (!calls_) return;
  calls_->push(text_, content, parsed_);
  calls_->finish(content, parsed_);
  add_calls(calls);
}

void AnswerText::add_calls(std::vector<ToolCallAnswer>& calls) {
  for (ToolCall& call : parsed_) {
    calls.push_back(
        {num_calls_++, make_request_id("call_"), std::move(call.name), std::move(call.arguments)});
  }
  parsed_.clear();
}

}  // namespace sluice
