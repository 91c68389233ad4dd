#include "tokenizer/legacy_files.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "tokenizer/utf8.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Result<json> parse_object(std::string_view text, std::string_view file) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return invalid_argument(std::string(file) + ": not a JSON object");
  return value;
}

// "left right" a line; a first line "#version" is no merge.
Result<json> read_merges(std::string_view text) {
  if (const auto invalid = utf8::find_invalid(text)) {
    return invalid_argument("merges.txt: not valid UTF-8 at byte offset " +
                            std::to_string(*invalid));
  }
  json merges = json::array();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  return merges;
}

bool flag(const json& token, const char* key) {
  const auto at = token.find(key);
  return at != token.end() && at->is_boolean() && at->get<bool>();
}

// From added_tokens_decoder: {"151643": {"content": "<|endoftext|>", "special": true, ..}, ..}.
Result<json> read_added_tokens(const json& config) {
  json tokens = json::array();
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end()) return tokens;
  const std::string path = "tokenizer_config.json: added_tokens_decoder";
  if (!decoder->is_object()) return invalid_argument(path + " must be an object");
  for (const auto& [key, token] : decoder->items()) {
    std::uint32_t id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
    if (!whole || !token.is_object() || !token.contains("content") ||
        !token["content"].is_string()) {
      return invalid_argument(path + "['" + key + "'] must be a token with content");
    }
    json added = {{"id", id}, {"content", token["content"]}};
    for (const char* name : {"special", "normalized", "lstrip", "rstrip", "single_word"}) {
      added[name] = flag(token, name);
    }
    tokens.push_back(std::move(added));
  }
  return tokens;
}

// Special tokens of the config that are in the vocabulary: without added_tokens_decoder nothing
// else says that "<|endoftext|>" is one token.
void add_named_tokens(const json& config, const json& vocab, json& added) {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto field = config.find(name);
    if (field == config.end()) continue;
    const json& content = field->is_object() ? field->value("content", json()) : *field;
    if (!content.is_string()) continue;
    const auto& text = content.get_ref<const std::string&>();
    const auto known = vocab.find(text);
    bool present = known == vocab.end();
    for (const json& token : added) present = present || token["content"] == content;
    if (!present) added.push_back({{"id", *known}, {"content", text}, {"special", true}});
  }
}

}  // namespace

Result<std::string> legacy_to_tokenizer_json(std::string_view vocab, std::string_view merges,
                                             std::string_view config_text) {
  ASSIGN_OR_RETURN(const json tokens, parse_object(vocab, "vocab.json"));
  // Checked here, so that nothing nested is ever written out again: that would recurse.
  for (const auto& [text, id] : tokens.items()) {
    if (!id.is_number_unsigned()) {
      return invalid_argument("vocab.json: '" + text.substr(0, 100) + "' must have a token id");
    }
  }
  ASSIGN_OR_RETURN(json merge_list, read_merges(merges));
  ASSIGN_OR_RETURN(const json config,
                   parse_object(config_text.empty() ? "{}" : config_text, "tokenizer_config.json"));
  const auto named = config.find("tokenizer_class");
  const bool has_name = named != config.end() && named->is_string();
  std::string name = has_name ? named->get<std::string>() : "GPT2Tokenizer";
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const bool is_qwen = name == "Qwen2Tokenizer";
  if (!is_qwen && name != "GPT2Tokenizer") {
    return unsupported("tokenizer_config.json: tokenizer_class '" + name +
                       "' is not supported without a tokenizer.json");
  }
  ASSIGN_OR_RETURN(json added, read_added_tokens(config));
  add_named_tokens(config, tokens, added);

  json result = {{"version", "1.0"}, {"added_tokens", std::move(added)}};
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", flag(config, "add_prefix_space")},
                           {"use_regex", !is_qwen}};
  result["decoder"] = byte_level;
  result["pre_tokenizer"] = byte_level;
  if (is_qwen) {
    result["normalizer"] = {{"type", "NFC"}};
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", kQwenPattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    result["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", json::array({split, byte_level})}};
  }
  result["model"] = {{"type", "BPE"}, {"vocab", tokens}, {"merges", std::move(merge_list)}};
  return result.dump();
}

}  // namespace sluice
