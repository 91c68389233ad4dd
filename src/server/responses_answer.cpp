#include "server/responses_answer.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "server/json_writer.h"

namespace sluice {
namespace {

constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";

std::string_view responses_status(FinishReason reason) {
  return reason == FinishReason::kLength ? kIncomplete : kCompleted;
}

// The id of an item: the response's, with another prefix, and the item's place.
std::string item_id(const AnswerHead& head, std::string_view prefix, int index) {
  return fmt::format("{}{}_{}", prefix, head.id.substr(head.id.find('_') + 1), index);
}

std::string text_part_json(std::string_view text) {
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":[]}})",
                     json_string(text));
}

std::string message_item(std::string_view id, std::string_view status, std::string_view content) {
  return fmt::format(
      R"({{"id":"{}","type":"message","status":"{}","role":"assistant","content":[{}]}})", id,
      status, content);
}

std::string reasoning_item(std::string_view id, std::string_view status, std::string_view content) {
  return fmt::format(
      R"({{"id":"{}","type":"reasoning","status":"{}","summary":[],"content":[{}]}})", id, status,
      content);
}

std::string reasoning_part_json(std::string_view text) {
  return fmt::format(R"({{"type":"reasoning_text","text":{}}})", json_string(text));
}

std::string_view call_status(const ToolCallAnswer& call) {
  return call.cut ? kIncomplete : kCompleted;
}

std::string call_item(std::string_view id, std::string_view status, const ToolCallAnswer& call,
                      std::string_view arguments) {
  return fmt::format(
      R"({{"id":"{}","type":"function_call","status":"{}","call_id":{},"name":{},"arguments":{}}})",
      id, status, json_string(call.id), json_string(call.name), json_string(arguments));
}

std::string responses_usage(const Usage* usage) {
  if (usage == nullptr) return "null";
  return fmt::format(
      R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{},"cache_write_tokens":0}},)"
      R"("output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
      usage->prompt_tokens, usage->cached_tokens, usage->completion_tokens,
      usage->reasoning_tokens.value_or(0), usage->prompt_tokens + usage->completion_tokens);
}

std::string response_json(const AnswerHead& head, std::string_view status, std::string_view output,
                          const Usage* usage) {
  return fmt::format(
      R"({{"id":"{}","object":"response","created_at":{},"status":"{}","error":null,)"
      R"("incomplete_details":{},"model":{},{},"output":[{}],"usage":{}}})",
      head.id, head.created, status,
      status == kIncomplete ? R"({"reason":"max_output_tokens"})" : "null", json_string(head.model),
      head.repeated_json, output, responses_usage(usage));
}

class ResponsesWriter final : public AnswerWriter {
 public:
  explicit ResponsesWriter(const AnswerHead& head) : head_(head) {}

  void append_chunk(const ChunkPart& part, const Usage&, std::string& out) override {
    if (sequence_ == 0) {
      const std::string response = response_json(head_, kInProgress, "", nullptr);
      event("response.created", fmt::format(R"("response":{})", response), out);
      event("response.in_progress", fmt::format(R"("response":{})", response), out);
    }
    if (!part.reasoning.empty()) {
      open(Item::kReasoning, out);
      piece("response.reasoning_text.delta", part.reasoning, "", out);
    }
    if (!part.text.empty()) {
      open(Item::kMessage, out);
      piece("response.output_text.delta", part.text, R"(,"logprobs":[])", out);
    }
    for (const ToolCallAnswer& call : part.tool_calls) append_call(call, out);
    if (part.finish_reason != FinishReason::kNone) status_ = responses_status(part.finish_reason);
  }

  void append_end(const Usage& usage, std::string& out) override {
    close(status_, out);
    const std::string_view name =
        status_ == kIncomplete ? "response.incomplete" : "response.completed";
    event(name, fmt::format(R"("response":{})", response_json(head_, status_, output_, &usage)),
          out);
  }

  void append_error(const ApiError& error, std::string& out) override {
    event("error",
          fmt::format(R"("code":{},"message":{},"param":null)",
                      json_string(error.code.empty() ? error.type : error.code),
                      json_string(error.message)),
          out);
  }

 private:
  enum class Item : std::uint8_t { kNone, kReasoning, kMessage };

  void event(std::string_view type, std::string_view members, std::string& out) {
    append_event(
        type, fmt::format(R"({{"type":"{}","sequence_number":{},{}}})", type, sequence_++, members),
        out);
  }

  // An event about the open item.
  void item_event(std::string_view type, std::string_view more, std::string& out) {
    event(type,
          fmt::format(R"("item_id":"{}","output_index":{},"content_index":0{})", id_, index_, more),
          out);
  }

  void item_is(std::string_view type, std::string_view item, std::string& out) {
    event(type, fmt::format(R"("output_index":{},"item":{})", index_, item), out);
  }

  void piece(std::string_view type, std::string_view text, std::string_view more,
             std::string& out) {
    text_ += text;
    item_event(type, fmt::format(R"(,"delta":{}{})", json_string(text), more), out);
  }

  void open(Item item, std::string& out) {
    if (open_ == item) return;
    close(kCompleted, out);
    open_ = item;
    text_.clear();
    if (item == Item::kMessage) {
      id_ = item_id(head_, "msg_", index_);
      item_is("response.output_item.added", message_item(id_, kInProgress, ""), out);
      item_event("response.content_part.added", fmt::format(R"(,"part":{})", text_part_json("")),
                 out);
    } else {
      id_ = item_id(head_, "rs_", index_);
      item_is("response.output_item.added", reasoning_item(id_, kInProgress, ""), out);
    }
  }

  void close(std::string_view status, std::string& out) {
    if (open_ == Item::kNone) return;
    std::string item;
    if (open_ == Item::kMessage) {
      const std::string part = text_part_json(text_);
      item_event("response.output_text.done",
                 fmt::format(R"(,"text":{},"logprobs":[])", json_string(text_)), out);
      item_event("response.content_part.done", fmt::format(R"(,"part":{})", part), out);
      item = message_item(id_, status, part);
    } else {
      item_event("response.reasoning_text.done", fmt::format(R"(,"text":{})", json_string(text_)),
                 out);
      item = reasoning_item(id_, status, reasoning_part_json(text_));
    }
    open_ = Item::kNone;
    done(item, out);
  }

  void append_call(const ToolCallAnswer& call, std::string& out) {
    close(kCompleted, out);
    id_ = item_id(head_, "fc_", index_);
    const std::string arguments = json_string(call.arguments);
    const std::string place = fmt::format(R"("item_id":"{}","output_index":{})", id_, index_);
    item_is("response.output_item.added", call_item(id_, kInProgress, call, ""), out);
    event("response.function_call_arguments.delta",
          fmt::format(R"({},"delta":{})", place, arguments), out);
    event("response.function_call_arguments.done",
          fmt::format(R"({},"name":{},"arguments":{})", place, json_string(call.name), arguments),
          out);
    done(call_item(id_, call_status(call), call, call.arguments), out);
  }

  void done(const std::string& item, std::string& out) {
    item_is("response.output_item.done", item, out);
    if (!output_.empty()) output_ += ',';
    output_ += item;
    ++index_;
  }

  const AnswerHead head_;
  std::int64_t sequence_ = 0;
  std::string_view status_ = kCompleted;
  Item open_ = Item::kNone;
  int index_ = 0;
  std::string id_;      // of the open item
  std::string text_;    // of the open item
  std::string output_;  // the finished items
};

}  // namespace

std::string responses_json(const AnswerHead& head, const ChoiceAnswer& choice, const Usage& usage) {
  const std::string_view status = responses_status(choice.finish_reason);
  std::string output;
  int index = 0;
  const auto add = [&](std::string_view item) {
    if (!output.empty()) output += ',';
    output += item;
    ++index;
  };
  if (!choice.reasoning.empty()) {
    add(reasoning_item(item_id(head, "rs_", index), kCompleted,
                       reasoning_part_json(choice.reasoning)));
  }
  if (!choice.text.empty()) {
    add(message_item(item_id(head, "msg_", index), status, text_part_json(choice.text)));
  }
  for (const ToolCallAnswer& call : choice.tool_calls) {
    add(call_item(item_id(head, "fc_", index), call_status(call), call, call.arguments));
  }
  return response_json(head, status, output, &usage);
}

std::unique_ptr<AnswerWriter> make_responses_writer(const AnswerHead& head) {
  return std::make_unique<ResponsesWriter>(head);
}

}  // namespace sluice
