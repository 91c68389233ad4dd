#include "front/text_sections.h"

#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "chat_template/template_sources.h"

namespace sluice {
namespace {

SnapshotKey key_of(const Snapshot& snapshot) {
  return {{"tokenizer files", snapshot.model().tokenizer}};
}

// Without files a snapshot is not asked, so that it does not tell of a section that cannot be.
bool has_tokenizer(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory + "/tokenizer.json", ignored) ||
         std::filesystem::exists(directory + "/vocab.json", ignored);
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
  ASSIGN_OR_RETURN(ChatTemplateSources sources, read_chat_template_sources(directory));
  snapshot.offer(kChatTemplatesSection, key,
                 [sources] { return write_chat_template_sources(sources); });
  return sources;
}

}  // namespace

Result<LoadedTokenizer> load_tokenizer(const std::string& directory, Snapshot& snapshot) {
  if (!has_tokenizer(directory)) {
    ASSIGN_OR_RETURN(Tokenizer alone, Tokenizer::load(directory));
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
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(directory));
  snapshot.offer(kTokenizerSection, key, [image = tokenizer.image()] {
    return std::vector<std::byte>(image.begin(), image.end());
  });
  return LoadedTokenizer{std::move(tokenizer), TokenizerSource::kFiles};
}

Result<ChatTemplates> load_chat_templates(const std::string& directory, Snapshot& snapshot) {
  ASSIGN_OR_RETURN(ChatTemplateSources sources, load_sources(directory, snapshot));
  return ChatTemplates::from_sources(std::move(sources));
}

const char* span_name(TokenizerSource source) {
  return source == TokenizerSource::kFiles ? "tokenizer JSON" : "tokenizer";
}

}  // namespace sluice
