// The variables a chat template sees: messages, tools, flags, special tokens, the time.
// Built from JSON text as clients send it; owns its values; immutable after from_*; any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "chat_template/value.h"

namespace sluice {

namespace jinja {
class Heap;
}

// Clients of the OpenAI API send a call's arguments as a JSON string; many templates want the
// object in it (and others the string). transformers passes what it is given.
enum class ToolArguments : std::uint8_t { kAsGiven, kParsed };

// Content may be an array of parts. Most templates want one text, some look at the parts.
enum class ContentParts : std::uint8_t {
  kAsGiven,
  kText,        // parts as given, but anything that is not text is refused
  kJoinedText,  // text parts joined by newlines, as vLLM does it; anything else is refused
};

// What stands for the content of a message that has none, as one with tool calls may.
enum class NoContent : std::uint8_t { kNothing, kNone, kEmptyText };

struct ChatInput {
  std::string_view messages_json;  // an array of objects
  std::string_view tools_json;     // an array, or empty: none
  std::string_view extra_json;     // an object of further variables, or empty
  bool add_generation_prompt = true;
  ToolArguments tool_arguments = ToolArguments::kAsGiven;
  ContentParts content_parts = ContentParts::kAsGiven;
  NoContent no_content = NoContent::kNothing;
  // Not empty: stands behind the text of the final message, which then must have one.
  std::string_view final_text_suffix;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // bos_token, ...
  std::chrono::local_seconds now{};                                 // for strftime_now
  const StopCheck* stop = nullptr;  // asked while the values are made; may be null
};

class ChatContext {
 public:
  // As transformers' apply_chat_template: `tools` and `documents` are none when not given, fields
  // of a message that are null are left out, and reasoning has all of its names (reasoning_content,
  // thinking). Extra variables win over special tokens.
  static Result<ChatContext> from_chat(const ChatInput& input);
  // The variables as they stand in a JSON object, nothing added.
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
  std::string_view final_text_;  // in the heap
};

// The wall clock's local time, for callers that serve users.
std::chrono::local_seconds local_time_now();

}  // namespace sluice
