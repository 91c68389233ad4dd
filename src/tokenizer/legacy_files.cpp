#include "tokenizer/legacy_files.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Result<json> parse_object(std::string_view text, std::string_view file) {
  std::string storage;
  const auto strict = strict_json(text, storage);
  if (!strict) return with_context(file, strict.error());
  json value = parse_json(*strict);
  if (!value.is_object()) return invalid_argument(std::string(file) + ": not a JSON object");
  return value;
}

// One merge "left right" a line; a first line "#version" is skipped.
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

bool contains_token(const json& tokens, const json& content) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](const json& token) { return token["content"] == content; });
}

// The text of "<s>" or {"content": "<s>", ..}; null for anything else.
json token_content(const json& field) {
  const json content = field.is_object() ? field.value("content", json()) : field;
  return content.is_string() ? content : json();
}

// All special tokens that the config names.
std::vector<json> named_tokens(const json& config) {
  std::vector<json> contents;
  const auto add = [&](const json& field) {
    if (json content = token_content(field); !content.is_null()) {
      contents.push_back(std::move(content));
    }
  };
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (config.contains(name)) add(config[name]);
  }
  const auto more = config.find("additional_special_tokens");
  if (more != config.end() && more->is_array()) {
    for (const json& field : *more) add(field);
  }
  return contents;
}

// The tokens of added_tokens.json: {"<|im_end|>": 50257, ..}.
Status append_added_tokens(std::string_view text, const std::vector<json>& special, json& added) {
  if (text.empty()) return {};
  ASSIGN_OR_RETURN(const json tokens, parse_object(text, "added_tokens.json"));
  for (const auto& [content, id] : tokens.items()) {
    if (!id.is_number_unsigned()) {
      return invalid_argument("added_tokens.json: '" + content.substr(0, 100) +
                              "' must have a token id");
    }
    if (contains_token(added, content)) continue;
    const bool is_special = std::find(special.begin(), special.end(), content) != special.end();
    added.push_back({{"id", id}, {"content", content}, {"special", is_special}});
  }
  return {};
}

// Appends special tokens that are in the vocabulary: without added_tokens_decoder, no other field
// says that "<|endoftext|>" is one token.
void append_special_tokens(const std::vector<json>& special, const json& vocab, json& added) {
  for (const json& content : special) {
    const auto known = vocab.find(content.get_ref<const std::string&>());
    if (known == vocab.end() || contains_token(added, content)) continue;
    added.push_back({{"id", *known}, {"content", content}, {"special", true}});
  }
}

// Fills in the fields that `config` lacks: from special_tokens_map.json, then from the class's
// defaults.
Status complete_config(std::string_view special_tokens_map, bool is_qwen, const json& vocab,
                       json& config) {
  if (!special_tokens_map.empty()) {
    ASSIGN_OR_RETURN(const json map, parse_object(special_tokens_map, "special_tokens_map.json"));
    for (const auto& [name, value] : map.items()) {
      if (!config.contains(name)) config[name] = value;
    }
  }
  constexpr const char* kDefault = "<|endoftext|>";
  if (!vocab.contains(kDefault)) return {};
  for (const char* name : {"unk_token", "eos_token", is_qwen ? "pad_token" : "bos_token"}) {
    if (!config.contains(name)) config[name] = kDefault;
  }
  return {};
}

// The fields of the config that a tokenizer reads.
std::string special_token_config(const json& config) {
  json result = json::object();
  for (const char* name : {"bos_token", "eos_token"}) {
    if (config.contains(name)) result[name] = token_content(config[name]);
  }
  for (const char* name : {"add_bos_token", "add_eos_token"}) {
    if (config.contains(name)) result[name] = flag(config, name);
  }
  return dump_json(result);
}

}  // namespace

Result<ConvertedTokenizer> convert_legacy_files(const LegacyFiles& files) {
  ASSIGN_OR_RETURN(const json tokens, parse_object(files.vocab, "vocab.json"));
  // Checked here, so that nested values are never written: writing them would recurse.
  for (const auto& [text, id] : tokens.items()) {
    if (!id.is_number_unsigned()) {
      return invalid_argument("vocab.json: '" + text.substr(0, 100) + "' must have a token id");
    }
  }
  ASSIGN_OR_RETURN(json merge_list, read_merges(files.merges));
  ASSIGN_OR_RETURN(json config, parse_object(files.config.empty() ? "{}" : files.config,
                                             "tokenizer_config.json"));
  const auto named = config.find("tokenizer_class");
  const bool has_name = named != config.end() && named->is_string();
  std::string name = has_name ? named->get<std::string>() : "GPT2Tokenizer";
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const bool is_qwen = name == "Qwen2Tokenizer";
  if (!is_qwen && name != "GPT2Tokenizer") {
    return unsupported("tokenizer_config.json: tokenizer_class '" + name +
                       "' is not supported without a tokenizer.json");
  }
  RETURN_IF_ERROR(complete_config(files.special_tokens_map, is_qwen, tokens, config));
  ASSIGN_OR_RETURN(json added, read_added_tokens(config));
  const std::vector<json> special = named_tokens(config);
  RETURN_IF_ERROR(append_added_tokens(files.added_tokens, special, added));
  append_special_tokens(special, tokens, added);

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
  return ConvertedTokenizer{dump_json(result), special_token_config(config)};
}

}  // namespace sluice
