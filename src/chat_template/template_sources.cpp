#include "chat_template/template_sources.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "base/byte_stream.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/utf8.h"
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

// `path`: for errors.
Status parse_config(std::string_view text, const std::string& path, Config* config) {
  std::string storage;
  const auto strict = strict_json(text, storage);
  if (!strict) return with_context(path, strict.error());
  ASSIGN_OR_RETURN(config->root, jinja::parse_json(*strict, config->heap, path));
  if (!config->root.is_dict()) return invalid_argument(path + ": must be a JSON object");
  return {};
}

Status read_config(const std::string& path, Config* config) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  return parse_config(text, path, config);
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

Status read_template_files(const std::string& directory, ChatTemplateSources* sources) {
  const std::string single = directory + "/chat_template.jinja";
  if (exists(single)) {
    ASSIGN_OR_RETURN(const std::string source, read_file(single, kMaxTemplateBytes));
    sources->templates.push_back({"default", "chat_template.jinja", source});
  }
  std::vector<fs::path> extra;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory + "/chat_templates", ignored)) {
    if (entry.path().extension() == ".jinja") extra.push_back(entry.path());
  }
  std::sort(extra.begin(), extra.end());
  for (const fs::path& path : extra) {
    ASSIGN_OR_RETURN(const std::string source, read_file(path.string(), kMaxTemplateBytes));
    sources->templates.push_back(
        {path.stem().string(), "chat_templates/" + path.filename().string(), source});
  }
  return {};
}

// The templates of tokenizer_config.json.
// `folder`: what precedes the file's name in errors.
Status read_config_templates(const Value& field, const std::string& folder,
                             ChatTemplateSources* sources) {
  const std::string where = "tokenizer_config.json (chat_template)";
  if (field.is_string()) {
    sources->templates.push_back({"default", where, std::string(field.text())});
    return {};
  }
  if (!field.is_sequence()) {
    return invalid_argument(folder + where + ": must be a text or a list of {name, template}");
  }
  for (const Value item : field.items()) {
    const Value* name = item.is_dict() ? find(item.as_dict(), "name") : nullptr;
    const Value* source = item.is_dict() ? find(item.as_dict(), "template") : nullptr;
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
      return invalid_argument(folder + where +
                              ": each item must be {\"name\": .., \"template\": ..}");
    }
    const std::string text(name->text());
    sources->templates.push_back({text, "tokenizer_config.json (chat_template \"" + text + "\")",
                                  std::string(source->text())});
  }
  return {};
}

// The tokens and, unless there are templates already, the templates.
Status read_tokenizer_config(const Config& config, const std::string& folder,
                             ChatTemplateSources* sources) {
  read_special_tokens(config.root, &sources->special_tokens);
  const Value* field = find(config.root.as_dict(), "chat_template");
  if (field == nullptr || field->is_none() || !sources->templates.empty()) return {};
  return read_config_templates(*field, folder, sources);
}

constexpr std::uint32_t kVersion = 1;

}  // namespace

Result<ChatTemplateSources> parse_chat_template_sources(std::string_view tokenizer_config_json) {
  ChatTemplateSources sources;
  Config config;
  RETURN_IF_ERROR(parse_config(tokenizer_config_json, "tokenizer_config.json", &config));
  RETURN_IF_ERROR(read_tokenizer_config(config, {}, &sources));
  return sources;
}

Result<ChatTemplateSources> read_chat_template_sources(const std::string& directory) {
  ChatTemplateSources sources;
  RETURN_IF_ERROR(read_template_files(directory, &sources));
  const std::string config_path = directory + "/tokenizer_config.json";
  if (exists(config_path)) {
    Config config;
    RETURN_IF_ERROR(read_config(config_path, &config));
    RETURN_IF_ERROR(read_tokenizer_config(config, directory + "/", &sources));
  }
  // Older checkpoints keep the tokens in a file of their own.
  const std::string map_path = directory + "/special_tokens_map.json";
  if (exists(map_path)) {
    Config map;
    RETURN_IF_ERROR(read_config(map_path, &map));
    read_special_tokens(map.root, &sources.special_tokens);
  }
  return sources;
}

std::vector<std::byte> write_chat_template_sources(const ChatTemplateSources& sources) {
  ByteWriter out;
  out.u32(kVersion);
  out.u32(static_cast<std::uint32_t>(sources.templates.size()));
  for (const auto& source : sources.templates) {
    out.text(source.name);
    out.text(source.where);
    out.text(source.text);
  }
  out.u32(static_cast<std::uint32_t>(sources.special_tokens.size()));
  for (const auto& [name, text] : sources.special_tokens) {
    out.text(name);
    out.text(text);
  }
  return out.take();
}

Result<ChatTemplateSources> open_chat_template_sources(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (const auto version = in.u32(); version != kVersion) {
    return unsupported("chat templates: version " + std::to_string(version) +
                       " of their bytes; this program reads version " + std::to_string(kVersion));
  }
  ChatTemplateSources sources;
  bool is_text = true;  // templates may be any bytes: parsing refuses those that are no text
  const auto text = [&] {
    const std::string_view value = in.text();
    if (utf8::find_invalid(value)) is_text = false;
    return std::string(value);
  };
  for (auto left = in.u32(); left > 0 && in.ok(); --left) {
    std::string name = text();
    std::string where = text();
    sources.templates.push_back({std::move(name), std::move(where), std::string(in.text())});
  }
  for (auto left = in.u32(); left > 0 && in.ok(); --left) {
    std::string name = text();
    sources.special_tokens.emplace_back(std::move(name), text());
  }
  if (!in.ok() || in.left() > 0 || !is_text) {
    return invalid_argument("chat templates: damaged bytes");
  }
  return sources;
}

}  // namespace sluice
