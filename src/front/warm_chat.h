// Warm prompts as text: a chat that the operator gives, and the tokens of it that every request
// behind it shares. Those are the tokens that two different user turns after the chat's messages
// have in common, in whole KV blocks. A template may name the date, so tokens are made at each
// start.
// Functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "front/prompt_builder.h"

namespace sluice {

struct WarmChat {
  std::string name;      // for messages: the file
  std::string messages;  // a JSON array of objects
  std::string tools;     // a JSON array; empty = none
  friend bool operator==(const WarmChat& a, const WarmChat& b) {
    return a.messages == b.messages && a.tools == b.tools;
  }
};

// `json`: an array of messages, or an object with `messages` and `tools`, of which one may be
// absent. kInvalidArgument names the chat and the field.
Result<WarmChat> parse_warm_chat(std::string_view json, std::string name);

// The shared tokens, as the server renders chats; possibly none. kInvalidArgument names the chat:
// the template refuses it, or it fills the context.
Result<std::vector<TokenId>> warm_tokens(const WarmChat& chat, PromptWorker& worker);

}  // namespace sluice
