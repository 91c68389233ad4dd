// Renders a chat as text with the model's chat template, as transformers does (docs/api.md: special
// tokens in messages). Tokenize the result with special tokens parsed, because the template writes
// them, and none added.
// Threads: any.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/stop_check.h"
#include "chat_template/chat_context.h"
#include "chat_template/template_loader.h"

namespace sluice {

// The parts of a chat as JSON. Parsed JSON is borrowed for the call.
struct ChatParts {
  ChatJson messages_json = {};  // an array of objects
  ChatJson tools_json = {};     // an array; not given = none
  ChatJson extra_json = {};     // an object: chat_template_kwargs; not given = none
  bool add_generation_prompt = true;
  // The final message's content is the end of the prompt, for the model to continue.
  bool continue_final_message = false;
  ToolArguments tool_arguments = ToolArguments::kAsGiven;
  ContentParts content_parts = ContentParts::kAsGiven;
};

// Errors: kInvalidArgument names the message or field; the template's own refusals and the error of
// `stop` pass through. `stop` may be null.
Result<std::string> render_chat(const ChatTemplates& templates, const ChatParts& parts,
                                std::chrono::local_seconds now, const StopCheck* stop = nullptr);

}  // namespace sluice
