#include "chat_template/template_loader.h"

#include <algorithm>

namespace sluice {

Result<ChatTemplates> ChatTemplates::load(const std::string& directory) {
  ASSIGN_OR_RETURN(ChatTemplateSources sources, read_chat_template_sources(directory));
  return from_sources(std::move(sources));
}

Result<ChatTemplates> ChatTemplates::from_sources(ChatTemplateSources sources) {
  if (sources.templates.empty()) {
    return not_found(
        "the model has no chat template (no chat_template.jinja, no chat_templates/, no "
        "chat_template in tokenizer_config.json). Add a chat_template.jinja to the checkpoint "
        "directory, or use plain completions.");
  }
  ChatTemplates result;
  for (auto& source : sources.templates) {
    auto parsed = ChatTemplate::parse(source.text, std::move(source.where));
    result.templates_.push_back({std::move(source.name), std::move(parsed)});
  }
  result.special_tokens_ = std::move(sources.special_tokens);
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
