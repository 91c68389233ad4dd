// Chats on the command line as token ids: from a JSON object or one message. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "chat_template/template_loader.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

struct ChatPrompt {
  std::string text;
  std::vector<TokenId> ids;
};

// `chat_json`: an object with `messages` and, optional, `tools`, `add_generation_prompt` (default
// true, as in the API); every other member is a variable of the template. `name` names the chat in
// errors.
Result<ChatPrompt> chat_prompt_from_json(const ChatTemplates& templates, std::string_view chat_json,
                                         std::string_view name, const Tokenizer& tokenizer);

// One user message, followed by the generation prompt.
Result<ChatPrompt> chat_prompt_for_message(const ChatTemplates& templates, std::string_view message,
                                           const Tokenizer& tokenizer);

}  // namespace sluice
