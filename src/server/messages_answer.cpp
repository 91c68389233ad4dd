#include "server/messages_answer.h"

#include <fmt/format.h>

#include <string_view>

#include "server/json_writer.h"

namespace sluice {
namespace {

std::string_view messages_stop_reason(FinishReason reason, bool called_tools, bool stop_string) {
  if (reason == FinishReason::kLength) return "max_tokens";
  if (stop_string) return "stop_sequence";
  return called_tools ? "tool_use" : "end_turn";
}

// "stop_reason":..,"stop_sequence":..
std::string stop_members(FinishReason reason, bool called_tools,
                         const std::optional<std::string>& stop) {
  return fmt::format(R"("stop_reason":"{}","stop_sequence":{})",
                     messages_stop_reason(reason, called_tools, stop.has_value()),
                     stop ? json_string(*stop) : "null");
}

// Tokens that came from the cache are counted apart, as Anthropic does.
std::string messages_usage(const Usage& usage) {
  return fmt::format(
      R"({{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":{},)"
      R"("output_tokens":{}}})",
      usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens, usage.completion_tokens);
}

std::string message_json(const AnswerHead& head, std::string_view content, std::string_view stop,
                         const Usage& usage) {
  return fmt::format(R"({{"id":"{}","type":"message","role":"assistant","model":{},)"
                     R"("content":[{}],{},"usage":{}}})",
                     head.id, json_string(head.model), content, stop, messages_usage(usage));
}

std::string tool_use_json(const ToolCallAnswer& call, std::string_view input) {
  return fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{}}})", json_string(call.id),
                     json_string(call.name), input);
}

class MessagesWriter final : public AnswerWriter {
 public:
  explicit MessagesWriter(const AnswerHead& head) : head_(head) {}

  void append_chunk(const ChunkPart& part, const Usage& usage, std::string& out) override {
    if (!begun_) begin(usage, out);
    if (!part.reasoning.empty()) {
      open(Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})", out);
      delta(
          fmt::format(R"({{"type":"thinking_delta","thinking":{}}})", json_string(part.reasoning)),
          out);
    }
    if (!part.text.empty()) {
      open(Block::kText, R"({"type":"text","text":""})", out);
      delta(fmt::format(R"({{"type":"text_delta","text":{}}})", json_string(part.text)), out);
    }
    for (const ToolCallAnswer& call : part.tool_calls) {
      close(out);
      open(Block::kTool, tool_use_json(call, "{}"), out);
      delta(fmt::format(R"({{"type":"input_json_delta","partial_json":{}}})",
                        json_string(call.arguments)),
            out);
      close(out);
    }
    if (part.finish_reason == FinishReason::kNone) return;
    stop_ = stop_members(part.finish_reason, part.called_tools, part.stop_reason);
  }

  void append_end(const Usage& usage, std::string& out) override {
    close(out);
    append_event("message_delta",
                 fmt::format(R"({{"type":"message_delta","delta":{{{}}},"usage":{}}})", stop_,
                             messages_usage(usage)),
                 out);
    append_event("message_stop", R"({"type":"message_stop"})", out);
  }

  void append_error(const ApiError& error, std::string& out) override {
    append_event("error", to_json(error, Dialect::kMessages), out);
  }

 private:
  enum class Block : std::uint8_t { kNone, kThinking, kText, kTool };

  void begin(const Usage& usage, std::string& out) {
    begun_ = true;
    Usage prompt = usage;
    prompt.completion_tokens = 0;
    append_event(
        "message_start",
        fmt::format(R"({{"type":"message_start","message":{}}})",
                    message_json(head_, "", R"("stop_reason":null,"stop_sequence":null)", prompt)),
        out);
  }

  void open(Block block, std::string_view start, std::string& out) {
    if (open_ == block) return;
    close(out);
    open_ = block;
    append_event("content_block_start",
                 fmt::format(R"({{"type":"content_block_start","index":{},"content_block":{}}})",
                             index_, start),
                 out);
  }

  void close(std::string& out) {
    if (open_ == Block::kNone) return;
    append_event("content_block_stop",
                 fmt::format(R"({{"type":"content_block_stop","index":{}}})", index_++), out);
    open_ = Block::kNone;
  }

  void delta(std::string_view json, std::string& out) {
    append_event(
        "content_block_delta",
        fmt::format(R"({{"type":"content_block_delta","index":{},"delta":{}}})", index_, json),
        out);
  }

  const AnswerHead head_;
  bool begun_ = false;
  Block open_ = Block::kNone;
  int index_ = 0;
  std::string stop_;
};

}  // namespace

std::string messages_json(const AnswerHead& head, const ChoiceAnswer& choice, const Usage& usage) {
  std::string content;
  const auto add = [&](std::string_view block) {
    if (!content.empty()) content += ',';
    content += block;
  };
  if (!choice.reasoning.empty()) {
    add(fmt::format(R"({{"type":"thinking","thinking":{},"signature":""}})",
                    json_string(choice.reasoning)));
  }
  if (!choice.text.empty()) {
    add(fmt::format(R"({{"type":"text","text":{}}})", json_string(choice.text)));
  }
  // An input is an object, so a call that was cut has an empty one here.
  for (const ToolCallAnswer& call : choice.tool_calls) {
    add(tool_use_json(call, call.cut ? "{}" : call.arguments));
  }
  return message_json(
      head, content,
      stop_members(choice.finish_reason, !choice.tool_calls.empty(), choice.stop_reason), usage);
}

std::unique_ptr<AnswerWriter> make_messages_writer(const AnswerHead& head) {
  return std::make_unique<MessagesWriter>(head);
}

std::string token_count_json(std::size_t tokens) {
  return fmt::format(R"({{"input_tokens":{}}})", tokens);
}

}  // namespace sluice
