// The texts of a checkpoint's chat templates and the special tokens they print, as its files have
// them. Found as transformers finds them: chat_template.jinja and chat_templates/*.jinja, else
// `chat_template` in tokenizer_config.json (a text, or a list of {name, template}).
// Plain data, which can also be kept as bytes: a start with the bytes parses no JSON.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice {

struct ChatTemplateSources {
  struct Source {
    std::string name;   // "default", "tool_use", ...
    std::string where;  // the file or field, for errors
    std::string text;
  };
  std::vector<Source> templates;  // may be empty: the checkpoint has none
  std::vector<std::pair<std::string, std::string>> special_tokens;  // "bos_token" and its text
};

// Errors: a file that cannot be read or is broken.
Result<ChatTemplateSources> read_chat_template_sources(const std::string& directory);

// Reads the text of a tokenizer_config.json alone. Errors name it.
Result<ChatTemplateSources> parse_chat_template_sources(std::string_view tokenizer_config_json);

// The same sources give the same bytes.
std::vector<std::byte> write_chat_template_sources(const ChatTemplateSources& sources);

// Errors: bytes of another version (kUnsupported), and any others that
// write_chat_template_sources() cannot have written.
Result<ChatTemplateSources> open_chat_template_sources(std::span<const std::byte> bytes);

}  // namespace sluice
