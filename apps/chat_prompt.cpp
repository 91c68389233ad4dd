#include "apps/chat_prompt.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "chat_template/chat_context.h"
#include "chat_template/chat_template.h"

namespace sluice {
namespace {

// Templates see keys in the order in which they were written.
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;

struct TemplateSource {
  std::string text;
  std::string name;
};

std::string path_of(const std::string& directory, std::string_view file) {
  return fmt::format("{}/{}", directory, file);
}

// An object from a file; nothing when there is no such file.
Result<std::optional<Json>> read_object(const std::string& path) {
  auto text = read_file(path, kMaxConfigBytes);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return std::optional<Json>();
    return std::move(text).error();
  }
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument(path + ": must be a JSON object");
  return std::optional<Json>(std::move(json));
}

// tokenizer_config.json: chat_template as a list of {"name", "template"}.
Result<TemplateSource> choose_named(const Json& list, const std::string& path, bool has_tools) {
  std::optional<TemplateSource> chosen;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return invalid_argument(path + ": chat_template: entries must have a name and a template");
    }
    const auto name = entry["name"].get<std::string>();
    if (name == "default" ? chosen.has_value() : name != "tool_use" || !has_tools) continue;
    chosen = {entry["template"].get<std::string>(),
              fmt::format("{}: chat_template {}", path, name)};
  }
  if (chosen) return *std::move(chosen);
  return invalid_argument(path + ": chat_template: none of the templates is named default");
}

Result<TemplateSource> find_template(const std::string& directory,
                                     const std::optional<Json>& config, bool has_tools) {
  const std::string jinja = path_of(directory, "chat_template.jinja");
  auto text = read_file(jinja, kMaxConfigBytes);
  if (text) return TemplateSource{*std::move(text), jinja};
  if (text.error().code != ErrorCode::kNotFound) return std::move(text).error();
  const std::string path = path_of(directory, "tokenizer_config.json");
  if (config && config->contains("chat_template")) {
    const Json& value = (*config)["chat_template"];
    if (value.is_string())
      return TemplateSource{value.get<std::string>(), path + ": chat_template"};
    if (value.is_array()) return choose_named(value, path, has_tools);
    if (!value.is_null()) return invalid_argument(path + ": chat_template must be text or a list");
  }
  return not_found(fmt::format(
      "{}: has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)",
      directory));
}

// bos_token and the like: a text, or an object with `content`.
std::vector<std::pair<std::string, std::string>> special_tokens(const std::optional<Json>& config) {
  constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                 "pad_token", "cls_token", "mask_token"};
  std::vector<std::pair<std::string, std::string>> tokens;
  if (!config) return tokens;
  for (const char* name : kNames) {
    const auto found = config->find(name);
    if (found == config->end()) continue;
    if (found->is_string()) {
      tokens.emplace_back(name, found->get<std::string>());
    } else if (found->is_object() && found->contains("content") &&
               (*found)["content"].is_string()) {
      tokens.emplace_back(name, (*found)["content"].get<std::string>());
    }
  }
  return tokens;
}

// The parts of a chat object as texts, which is how templates' contexts are built.
struct ChatParts {
  std::string messages;
  std::string tools;
  std::string extra;
  bool add_generation_prompt = false;
};

Result<ChatParts> split_chat(std::string_view chat_json, std::string_view name) {
  Json chat = Json::parse(chat_json, nullptr, /*allow_exceptions=*/false);
  if (!chat.is_object()) {
    return invalid_argument(fmt::format("{}: must be a JSON object with messages", name));
  }
  if (!chat.contains("messages"))
    return invalid_argument(fmt::format("{}: messages missing", name));
  ChatParts parts;
  parts.messages = chat["messages"].dump();
  if (chat.contains("tools") && !chat["tools"].is_null()) parts.tools = chat["tools"].dump();
  if (chat.contains("add_generation_prompt")) {
    const Json& flag = chat["add_generation_prompt"];
    if (!flag.is_boolean()) {
      return invalid_argument(fmt::format("{}: add_generation_prompt must be true or false", name));
    }
    parts.add_generation_prompt = flag.get<bool>();
  }
  for (const char* key : {"messages", "tools", "add_generation_prompt"}) chat.erase(key);
  if (!chat.empty()) parts.extra = chat.dump();
  return parts;
}

Result<ChatPrompt> render(const std::string& directory, const ChatParts& parts,
                          std::string_view name, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::optional<Json> config,
                   read_object(path_of(directory, "tokenizer_config.json")));
  ASSIGN_OR_RETURN(TemplateSource source, find_template(directory, config, !parts.tools.empty()));
  ASSIGN_OR_RETURN(const ChatTemplate parsed,
                   ChatTemplate::parse(source.text, std::move(source.name)));
  ChatInput input;
  input.messages_json = parts.messages;
  input.tools_json = parts.tools;
  input.extra_json = parts.extra;
  input.add_generation_prompt = parts.add_generation_prompt;
  input.special_tokens = special_tokens(config);
  input.now = local_time_now();
  auto context = ChatContext::from_chat(input);
  if (!context) return with_context(name, std::move(context).error());
  ChatPrompt prompt;
  ASSIGN_OR_RETURN(prompt.text, parsed.render(*context));
  EncodeOptions options;
  options.add_special_tokens = AddSpecialTokens::kNo;
  ASSIGN_OR_RETURN(prompt.ids, tokenizer.encode(prompt.text, options));
  return prompt;
}

}  // namespace

Result<ChatPrompt> chat_prompt_from_json(const std::string& model_directory,
                                         std::string_view chat_json, std::string_view name,
                                         const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const ChatParts parts, split_chat(chat_json, name));
  return render(model_directory, parts, name, tokenizer);
}

Result<ChatPrompt> chat_prompt_for_message(const std::string& model_directory,
                                           std::string_view message, const Tokenizer& tokenizer) {
  // dump() below refuses what is not UTF-8, by an exception; say so first.
  Json messages = Json::array({{{"role", "user"}, {"content", std::string(message)}}});
  ChatParts parts;
  try {
    parts.messages = messages.dump();
  } catch (const Json::exception&) {
    return invalid_argument("--chat: the message is not valid UTF-8");
  }
  parts.add_generation_prompt = true;
  return render(model_directory, parts, "--chat", tokenizer);
}

}  // namespace sluice
