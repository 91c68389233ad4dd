// ChatContext: the variables that a chat template sees: messages, tools, flags, special tokens, the
// time. Built from the JSON of clients. Owns its values, but borrows the strings of JSON trees;
// immutable after from_*; any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_document.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "chat_template/value.h"

namespace sluice {

namespace jinja {
class Heap;
}

// Clients of the OpenAI API send a call's arguments as a JSON string. Many templates need the
// object in it, others the string. transformers passes the arguments unchanged.
enum class ToolArguments : std::uint8_t { kAsGiven, kParsed };

// The content of a message may be an array of parts. Most templates need one text, some read the
// parts.
enum class ContentParts : std::uint8_t {
  kAsGiven,
  kText,        // parts as given; a part that is not text is refused
  kJoinedText,  // text parts joined by newlines, as in vLLM; other parts are refused
};

// The substitute for missing content; a message with tool calls may have none.
enum class NoContent : std::uint8_t { kNothing, kNone, kEmptyText };

// A part of a chat: JSON text, or parsed JSON, which must outlive the context. Empty text and a
// null pointer mean that the part is not given.
using ChatJson = std::variant<std::string_view, const JsonValue*>;

bool is_given(const ChatJson& json);

struct ChatInput {
  ChatJson messages_json;  // an array of objects
  ChatJson tools_json;     // an array, or not given: none
  ChatJson extra_json;     // an object of further variables, or not given
  bool add_generation_prompt = true;
  ToolArguments tool_arguments = ToolArguments::kAsGiven;
  ContentParts content_parts = ContentParts::kAsGiven;
  NoContent no_content = NoContent::kNothing;
  // Appended to the text of the final message, which must have a text then; empty = nothing.
  std::string_view final_text_suffix;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // bos_token, ...
  std::chrono::local_seconds now{};                                 // for strftime_now
  const StopCheck* stop = nullptr;  // called while the values are made; may be null
};

class ChatContext {
 public:
  // Like transformers' apply_chat_template: `tools` and `documents` are none by default, a
  // message's null fields are left out, and its reasoning is given as `reasoning_content` and as
  // `thinking`. Extra variables win over special tokens.
  static Result<ChatContext> from_chat(const ChatInput& input);
  // The variables are the fields of a JSON object; nothing is added.
  static Result<ChatContext> from_json(std::string_view object, std::chrono::local_seconds now);

  ChatContext(ChatContext&&) noexcept;
  ChatContext& operator=(ChatContext&&) noexcept;
  ~ChatContext();

  jinja::Value variables() const { return variables_; }
  std::chrono::local_seconds now() const { return now_; }
  // With a suffix: the text of the final message, without it.
  std::string_view final_text() const { return final_text_; }

 private:
  ChatContext(std::unique_ptr<jinja::Heap> heap, jinja::Value variables,
              std::chrono::local_seconds now);

  std::unique_ptr<jinja::Heap> heap_;
  jinja::Value variables_;
  std::chrono::local_seconds now_;
  std::string_view final_text_;
};

// The wall clock's local time, for callers that serve users.
std::chrono::local_seconds local_time_now();

}  // namespace sluice
