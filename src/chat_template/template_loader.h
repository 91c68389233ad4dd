// The chat templates of a checkpoint directory, parsed, and the special tokens they print
// (template_sources.h says where they come from). Immutable; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat_template/chat_template.h"
#include "chat_template/template_sources.h"

namespace sluice {

enum class ToolsGiven : std::uint8_t { kNo, kYes };

class ChatTemplates {
 public:
  // kNotFound when the checkpoint has no template; the message says what to do. A template that
  // does not parse is reported by choose(), so that a spare one cannot make a model unusable. Both
  // messages reach clients: they name files, without the directory.
  static Result<ChatTemplates> load(const std::string& directory);
  static Result<ChatTemplates> from_sources(ChatTemplateSources sources);

  // The template "tool_use" when tools are given and there is one, else "default" or the only one.
  Result<const ChatTemplate*> choose(ToolsGiven tools) const;
  Result<const ChatTemplate*> by_name(std::string_view name) const;
  std::vector<std::string> names() const;

  // bos_token, eos_token, ... as template variables.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const {
    return special_tokens_;
  }

 private:
  struct Named {
    std::string name;
    Result<ChatTemplate> parsed;
  };

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

}  // namespace sluice
