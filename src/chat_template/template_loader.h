// The chat templates of a checkpoint directory and the special tokens they print, found as
// transformers finds them: chat_template.jinja and chat_templates/*.jinja, else `chat_template` in
// tokenizer_config.json (a text, or a list of {name, template}). Immutable; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat_template/chat_template.h"

namespace sluice {

enum class ToolsGiven : std::uint8_t { kNo, kYes };

class ChatTemplates {
 public:
  // kNotFound when the checkpoint has no template; the message says what to do. A template that
  // does not parse is reported by choose(), so that a spare one cannot make a model unusable. Both
  // messages reach clients: they name files, without the directory.
  static Result<ChatTemplates> load(const std::string& directory);

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

  void add(std::string name, std::string_view source, const std::string& where);
  Status load_files(const std::string& directory);

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

}  // namespace sluice
