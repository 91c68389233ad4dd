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
// true, as in the API); everything else in it is a variable of the template. `name` stands
// for it in errors.
Result<ChatPrompt> chat_prompt_from_json(const ChatTemplates& templates, std::string_view chat_json,
                                         std::string_view name, const Tokenizer& tokenizer);

// One user message, with the generation prompt behind it.
Result<ChatPrompt> chat_prompt_for_message(const ChatTemplates& templates, std::string_view message,
                                           const Tokenizer& tokenizer);

}  // namespace sluice
