#include "apps/chat_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/json_depth.h"
#include "base/utf8.h"
#include "chat_template/chat_context.h"
#include "front/chat_prompt.h"

namespace sluice {
namespace {

// Templates see keys in the order in which they were written.
using Json = nlohmann::ordered_json;

// As deep as template values may be.
constexpr int kMaxChatDepth = 150;

// The parts of a chat object as texts.
struct ChatTexts {
  std::string messages;
  std::string tools;
  std::string extra;
  bool add_generation_prompt = true;
};

Result<ChatTexts> split_chat(std::string_view chat_json, std::string_view name) {
  if (json_deeper_than(chat_json, kMaxChatDepth)) {
    return invalid_argument(fmt::format("{}: nested deeper than {} levels", name, kMaxChatDepth));
  }
  Json chat = parse_ordered_json(chat_json);
  if (chat.is_discarded()) return invalid_argument(fmt::format("{}: is not valid JSON", name));
  if (!chat.is_object()) {
    return invalid_argument(fmt::format("{}: must be a JSON object with messages", name));
  }
  if (!chat.contains("messages")) {
    return invalid_argument(fmt::format("{}: messages missing", name));
  }
  ChatTexts parts;
  parts.messages = dump_json(chat["messages"]);
  if (chat.contains("tools") && !chat["tools"].is_null()) parts.tools = dump_json(chat["tools"]);
  if (chat.contains("add_generation_prompt")) {
    const Json& flag = chat["add_generation_prompt"];
    if (!flag.is_boolean()) {
      return invalid_argument(fmt::format("{}: add_generation_prompt must be true or false", name));
    }
    parts.add_generation_prompt = flag.get<bool>();
  }
  for (const char* key : {"messages", "tools", "add_generation_prompt"}) chat.erase(key);
  if (!chat.empty()) parts.extra = dump_json(chat);
  return parts;
}

Result<ChatPrompt> render(const ChatTemplates& templates, const ChatTexts& texts,
                          std::string_view name, const Tokenizer& tokenizer) {
  const ChatParts parts{.messages_json = texts.messages,
                        .tools_json = texts.tools,
                        .extra_json = texts.extra,
                        .add_generation_prompt = texts.add_generation_prompt};
  auto text = render_chat(templates, parts, local_time_now());
  if (!text) return with_context(name, std::move(text).error());
  ChatPrompt prompt;
  prompt.text = *std::move(text);
  EncodeOptions options;
  options.add_special_tokens = AddSpecialTokens::kNo;
  ASSIGN_OR_RETURN(prompt.ids, tokenizer.encode(prompt.text, options));
  return prompt;
}

}  // namespace

Result<ChatPrompt> chat_prompt_from_json(const ChatTemplates& templates, std::string_view chat_json,
                                         std::string_view name, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const ChatTexts parts, split_chat(chat_json, name));
  return render(templates, parts, name, tokenizer);
}

Result<ChatPrompt> chat_prompt_for_message(const ChatTemplates& templates, std::string_view message,
                                           const Tokenizer& tokenizer) {
  if (utf8::find_invalid(message)) {
    return invalid_argument("--chat: the message is not valid UTF-8");
  }
  ChatTexts parts;
  parts.messages = dump_json(Json::array({{{"role", "user"}, {"content", std::string(message)}}}));
  parts.add_generation_prompt = true;
  return render(templates, parts, "--chat", tokenizer);
}

}  // namespace sluice
