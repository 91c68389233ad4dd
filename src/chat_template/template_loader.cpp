#include "chat_template/template_loader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/json_text.h"
#include "chat_template/heap.h"
#include "chat_template/json_value.h"
#include "chat_template/ops.h"

namespace sluice {

namespace fs = std::filesystem;
using jinja::Value;

namespace {

constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;
// tokenizer_config.json also lists added tokens; the largest known ones have a few megabytes.
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A JSON object of a file with the memory its values live in.
struct Config {
  jinja::Heap heap{std::size_t{1} << 30, std::uint64_t{1} << 40};
  Value root;
};

Status read_config(const std::string& path, Config* config) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  std::string storage;
  const auto strict = strict_json(text, storage);
  if (!strict) return with_context(path, strict.error());
  ASSIGN_OR_RETURN(config->root, jinja::parse_json(*strict, config->heap, path));
  if (!config->root.is_dict()) return invalid_argument(path + ": must be a JSON object");
  return {};
}

// "<s>" or {"content": "<s>", ...}; empty when it is neither.
std::string_view token_text(const Value* token) {
  if (token == nullptr) return {};
  if (token->is_string()) return token->text();
  if (!token->is_dict()) return {};
  const Value* content = find(token->as_dict(), "content");
  return content != nullptr && content->is_string() ? content->text() : std::string_view();
}

void read_special_tokens(const Value& config,
                         std::vector<std::pair<std::string, std::string>>* tokens) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const bool known = std::any_of(tokens->begin(), tokens->end(),
                                   [&](const auto& token) { return token.first == name; });
    const std::string_view text = token_text(find(config.as_dict(), name));
    if (!known && !text.empty()) tokens->emplace_back(name, text);
  }
}

}  // namespace

void ChatTemplates::add(std::string name, std::string_view source, const std::string& where) {
  templates_.push_back({std::move(name), ChatTemplate::parse(source, where)});
}

Status ChatTemplates::load_files(const std::string& directory) {
  const std::string single = directory + "/chat_template.jinja";
  if (exists(single)) {
    ASSIGN_OR_RETURN(const std::string source, read_file(single, kMaxTemplateBytes));
    add("default", source, "chat_template.jinja");
  }
  std::vector<fs::path> extra;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory + "/chat_templates", ignored)) {
    if (entry.path().extension() == ".jinja") extra.push_back(entry.path());
  }
  std::sort(extra.begin(), extra.end());
  for (const fs::path& path : extra) {
    ASSIGN_OR_RETURN(const std::string source, read_file(path.string(), kMaxTemplateBytes));
    add(path.stem().string(), source, "chat_templates/" + path.filename().string());
  }
  return {};
}

Result<ChatTemplates> ChatTemplates::load(const std::string& directory) {
  ChatTemplates result;
  RETURN_IF_ERROR(result.load_files(directory));
  const std::string config_path = directory + "/tokenizer_config.json";
  if (exists(config_path)) {
    Config config;
    RETURN_IF_ERROR(read_config(config_path, &config));
    read_special_tokens(config.root, &result.special_tokens_);
    const Value* field = find(config.root.as_dict(), "chat_template");
    const std::string where = "tokenizer_config.json (chat_template)";
    if (field != nullptr && !field->is_none() && result.templates_.empty()) {
      if (field->is_string()) {
        result.add("default", field->text(), where);
      } else if (field->is_sequence()) {
        for (const Value item : field->items()) {
          const Value* name = item.is_dict() ? find(item.as_dict(), "name") : nullptr;
          const Value* source = item.is_dict() ? find(item.as_dict(), "template") : nullptr;
          if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
            return invalid_argument(directory + "/" + where +
                                    ": each item must be {\"name\": .., \"template\": ..}");
          }
          result.add(std::string(name->text()), source->text(),
                     "tokenizer_config.json (chat_template \"" + std::string(name->text()) + "\")");
        }
      } else {
        return invalid_argument(directory + "/" + where +
                                ": must be a text or a list of {name, template}");
      }
    }
  }
  // Older checkpoints keep the tokens in a file of their own.
  const std::string map_path = directory + "/special_tokens_map.json";
  if (exists(map_path)) {
    Config map;
    RETURN_IF_ERROR(read_config(map_path, &map));
    read_special_tokens(map.root, &result.special_tokens_);
  }
  if (result.templates_.empty()) {
    return not_found(
        "the model has no chat template (no chat_template.jinja, no chat_templates/, no "
        "chat_template in tokenizer_config.json). Add a chat_template.jinja to the checkpoint "
        "directory, or use plain completions.");
  }
  return result;
}

std::vector<std::string> ChatTemplates::names() const {
  std::vector<std::string> names;
  for (const Named& named : templates_) names.push_back(named.name);
  return names;
}

Result<const ChatTemplate*> ChatTemplates::by_name(std::string_view name) const {
  for (const Named& named : templates_) {
    if (named.name != name) continue;
    if (!named.parsed) return named.parsed.error();
    return &*named.parsed;
  }
  std::string known;
  for (const Named& named : templates_) known += (known.empty() ? "" : ", ") + named.name;
  return not_found("there is no chat template \"" + std::string(name) + "\"; there are: " + known);
}

Result<const ChatTemplate*> ChatTemplates::choose(ToolsGiven tools) const {
  const auto has = [&](std::string_view name) {
    return std::any_of(templates_.begin(), templates_.end(),
                       [&](const Named& named) { return named.name == name; });
  };
  if (tools == ToolsGiven::kYes && has("tool_use")) return by_name("tool_use");
  return by_name("default");
}

}  // namespace sluice
