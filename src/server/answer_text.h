// AnswerText: the tokens of one choice as the parts of its answer: reasoning, content and tool
// calls. Without formats of these all text is content.
// Owner: a Generation. Threads: the event loop's. Formats and parameters must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "front/reasoning_stream.h"
#include "front/text_stream.h"
#include "front/tool_call_stream.h"
#include "server/response_json.h"

namespace sluice {

struct AnswerParts {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallAnswer> calls;

  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
  void clear() {
    content.clear();
    reasoning.clear();
    calls.clear();
  }
};

class AnswerText {
 public:
  explicit AnswerText(TextStream stream) : stream_(std::move(stream)) {}
  void read_calls(const ToolFormat& format, const ToolParameters& parameters) {
    calls_.emplace(format, parameters);
  }
  // `inside`: the prompt ends inside the reasoning.
  void read_reasoning(const ReasoningFormat& format, bool inside) {
    reasoning_.emplace(format, inside);
  }

  // As TextStream's. Appends to `out`.
  TextStream::Taken push(std::span<const TokenId> tokens, FinishReason finish, AnswerParts& out,
                         std::vector<std::int64_t>& offsets);
  // The tokens have ended, with or without a stop string. `reason`: why the choice ended.
  void finish(bool stopped, FinishReason reason, AnswerParts& out);

  std::optional<std::size_t> stopped_by() const { return stream_.stopped_by(); }
  bool any_call() const { return num_calls_ > 0; }
  // Tokens of the reasoning so far, its markers included; nothing without a format of reasoning.
  std::optional<std::int64_t> reasoning_tokens() const {
    return reasoning_ ? std::optional(reasoning_tokens_) : std::nullopt;
  }

 private:
  void split(std::string_view text, std::optional<TextEnd> end, AnswerParts& out);
  void count_reasoning(bool inside_before);

  TextStream stream_;
  std::optional<ReasoningStream> reasoning_;
  std::optional<ToolCallStream> calls_;
  std::int32_t num_calls_ = 0;
  std::int64_t reasoning_tokens_ = 0;
  std::int64_t undecided_tokens_ = 0;  // reasoning if the first marker comes
  std::string text_;                   // scratch
  std::string after_reasoning_;        // scratch
  std::vector<ToolCall> parsed_;       // scratch
};

}  // namespace sluice
