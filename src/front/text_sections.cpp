#include "front/text_sections.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "chat_template/template_sources.h"
#include "model/model_files.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;

SnapshotKey key_of(const Snapshot& snapshot) {
  return {{"tokenizer files", snapshot.model().tokenizer}};
}

// Without files a snapshot is not asked, so that it does not tell of a section that cannot be.
bool has_tokenizer(const std::string& directory) {
  std::error_code ignored;
  return is_gguf_model(directory) ||
         std::filesystem::exists(directory + "/tokenizer.json", ignored) ||
         std::filesystem::exists(directory + "/vocab.json", ignored);
}

// Translated texts grow by a small factor only.
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{256} << 20;

Result<Tokenizer> read_tokenizer(const std::string& model) {
  if (!is_gguf_model(model)) return Tokenizer::load(model);
  ASSIGN_OR_RETURN(const std::string json, read_model_text(model, "tokenizer.json", kMaxTextBytes));
  ASSIGN_OR_RETURN(const std::string config,
                   read_model_text(model, "tokenizer_config.json", kMaxTextBytes));
  auto tokenizer = Tokenizer::from_json(json, config);
  if (!tokenizer) return with_context(model, tokenizer.error());
  return tokenizer;
}

Result<ChatTemplateSources> read_sources(const std::string& model) {
  if (!is_gguf_model(model)) return read_chat_template_sources(model);
  ASSIGN_OR_RETURN(const std::string config,
                   read_model_text(model, "tokenizer_config.json", kMaxTextBytes));
  auto sources = parse_chat_template_sources(config);
  if (!sources) return with_context(model, sources.error());
  return sources;
}

Result<ChatTemplateSources> load_sources(const std::string& directory, Snapshot& snapshot) {
  const SnapshotKey key = key_of(snapshot);
  if (const auto bytes = snapshot.find(kChatTemplatesSection, key)) {
    auto restored = open_chat_template_sources(*bytes);
    if (restored) {
      snapshot.restored(kChatTemplatesSection);
      return restored;
    }
    snapshot.rejected(kChatTemplatesSection, restored.error().message);
  }
  ASSIGN_OR_RETURN(ChatTemplateSources sources, read_sources(directory));
  snapshot.offer(kChatTemplatesSection, key,
                 [sources] { return write_chat_template_sources(sources); });
  return sources;
}

}  // namespace

Result<LoadedTokenizer> load_tokenizer(const std::string& directory, Snapshot& snapshot) {
  if (!has_tokenizer(directory)) {
    ASSIGN_OR_RETURN(Tokenizer alone, read_tokenizer(directory));
    return LoadedTokenizer{std::move(alone), TokenizerSource::kFiles};
  }
  const SnapshotKey key = key_of(snapshot);
  if (const auto bytes = snapshot.find(kTokenizerSection, key)) {
    auto restored = Tokenizer::from_image(*bytes, nullptr);
    if (restored) {
      snapshot.restored(kTokenizerSection);
      return LoadedTokenizer{*std::move(restored), TokenizerSource::kSnapshot};
    }
    snapshot.rejected(kTokenizerSection, restored.error().message);
  }
  ASSIGN_OR_RETURN(Tokenizer tokenizer, read_tokenizer(directory));
  snapshot.offer(kTokenizerSection, key, [image = tokenizer.image()] {
    return std::vector<std::byte>(image.begin(), image.end());
  });
  return LoadedTokenizer{std::move(tokenizer), TokenizerSource::kFiles};
}

Result<ChatTemplates> load_chat_templates(const std::string& directory, Snapshot& snapshot,
                                          const std::string& file) {
  ASSIGN_OR_RETURN(ChatTemplateSources sources, load_sources(directory, snapshot));
  if (file.empty()) return ChatTemplates::from_sources(std::move(sources));
  auto text = read_file(file, kMaxTemplateBytes);
  if (!text) return invalid_argument("--chat-template: " + text.error().message);
  sources.templates = {{"default", file, *std::move(text)}};
  ASSIGN_OR_RETURN(ChatTemplates templates, ChatTemplates::from_sources(std::move(sources)));
  if (auto parsed = templates.by_name("default"); !parsed) {
    return with_context("--chat-template", std::move(parsed).error());
  }
  return templates;
}

const char* span_name(TokenizerSource source) {
  return source == TokenizerSource::kFiles ? "tokenizer JSON" : "tokenizer";
}

}  // namespace sluice
