// AnswerText: the tokens of one choice as the parts of its answer: content and tool calls. Without
// a tool format all text is content.
// Owner: a Generation. Threads: the event loop's. Format and parameters must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "front/text_stream.h"
#include "front/tool_call_stream.h"
#include "server/response_json.h"

namespace sluice {

class AnswerText {
 public:
  explicit AnswerText(TextStream stream) : stream_(std::move(stream)) {}
  void read_calls(const ToolFormat& format, const ToolParameters& parameters) {
    calls_.emplace(format, parameters);
  }

  // As TextStream's. Both append to `content` and `calls`.
  TextStream::Taken push(std::span<const TokenId> tokens, FinishReason finish, std::string& content,
                         std::vector<ToolCallAnswer>& calls, std::vector<std::int64_t>& offsets);
  // The tokens have ended, with or without a stop string.
  void finish(bool stopped, std::string& content, std::vector<ToolCallAnswer>& calls);

  std::optional<std::size_t> stopped_by() const { return stream_.stopped_by(); }
  bool any_call() const { return num_calls_ > 0; }

 private:
  void add_calls(std::vector<ToolCallAnswer>& calls);

  TextStream stream_;
  std::optional<ToolCallStream> calls_;
  std::int32_t num_calls_ = 0;
  std::string text_;              // scratch
  std::vector<ToolCall> parsed_;  // scratch
};

}  // namespace sluice
