#include "front/warm_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/json_depth.h"

namespace sluice {
namespace {

// Templates see keys in the order in which they were written.
using Json = nlohmann::ordered_json;

// As deep as template values may be.
constexpr int kMaxDepth = 150;

// Their first characters differ in kind, so that tokens at the border of the turn differ too.
constexpr std::string_view kTurns[] = {"a", "0"};

Status check_array(const Json& value, std::string_view name, std::string_view field) {
  const bool fits =
      value.is_array() && std::ranges::all_of(value, [](const Json& v) { return v.is_object(); });
  if (fits) return {};
  return invalid_argument(fmt::format("{}: {} must be an array of objects", name, field));
}

Result<std::vector<TokenId>> tokens_with(const WarmChat& chat, std::string_view turn,
                                         PromptWorker& worker) {
  Json messages = parse_ordered_json(chat.messages);
  if (!messages.is_array()) return invalid_argument(chat.name + ": messages must be an array");
  messages.push_back({{"role", "user"}, {"content", std::string(turn)}});
  const std::string text = dump_json(messages);
  ChatParts parts;
  parts.messages_json = text;
  if (!chat.tools.empty()) parts.tools_json = chat.tools;
  parts.tool_arguments = ToolArguments::kParsed;
  parts.content_parts = ContentParts::kJoinedText;
  auto tokens = worker.tokenize_chat(parts, AddSpecialTokens::kNo);
  if (!tokens) return with_context(chat.name, std::move(tokens).error().error);
  return *std::move(tokens);
}

}  // namespace

Result<WarmChat> parse_warm_chat(std::string_view json, std::string name) {
  if (json_deeper_than(json, kMaxDepth)) {
    return invalid_argument(fmt::format("{}: nested deeper than {} levels", name, kMaxDepth));
  }
  Json chat = parse_ordered_json(json);
  if (chat.is_discarded()) return invalid_argument(fmt::format("{}: is not valid JSON", name));
  if (chat.is_array()) chat = Json::object({{"messages", std::move(chat)}});
  if (!chat.is_object()) {
    return invalid_argument(fmt::format(
        "{}: must be an array of messages, or an object with messages and tools", name));
  }
  Json messages = Json::array();
  Json tools;
  for (auto& [key, value] : chat.items()) {
    if (key != "messages" && key != "tools") {
      return invalid_argument(
          fmt::format("{}: has a field '{}'; a warm prompt has messages and tools and nothing else",
                      name, key));
    }
    if (value.is_null()) continue;
    RETURN_IF_ERROR(check_array(value, name, key));
    (key == "messages" ? messages : tools) = std::move(value);
  }
  if (messages.empty() && (tools.is_null() || tools.empty())) {
    return invalid_argument(fmt::format("{}: has neither messages nor tools", name));
  }
  const auto text = [](const Json& value) { return dump_json(value); };
  return WarmChat{std::move(name), text(messages),
                  tools.is_null() || tools.empty() ? std::string() : text(tools)};
}

Result<std::vector<TokenId>> warm_tokens(const WarmChat& chat, PromptWorker& worker) {
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokens_with(chat, kTurns[0], worker));
  ASSIGN_OR_RETURN(const std::vector<TokenId> other, tokens_with(chat, kTurns[1], worker));
  const auto shared =
      static_cast<std::size_t>(std::ranges::mismatch(tokens, other).in1 - tokens.begin());
  const auto block = static_cast<std::size_t>(worker.model().block_size);
  tokens.resize(shared / block * block);
  const auto context = static_cast<std::size_t>(worker.model().limits.max_model_len);
  if (tokens.size() < context) return tokens;
  return invalid_argument(fmt::format(
      "{}: has {} tokens, the context of {} must hold it and at least one token more; shorten it "
      "or raise --max-model-len",
      chat.name, tokens.size(), context));
}

}  // namespace sluice
