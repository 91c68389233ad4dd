#include "model/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "checkpoint/quote_text.h"
#include "model/gguf_merges.h"

namespace sluice {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
// Limits pieces that merges make, because the time to find merges grows with the square. Most
// vocabularies have at most 16 characters.
constexpr std::size_t kMaxPieceBytes = 1024;
constexpr std::int64_t kOrdinary = 1;
constexpr std::int64_t kUnknown = 2;
constexpr std::int64_t kControl = 3;
constexpr std::int64_t kUserDefined = 4;

struct TokenizerKind {
  std::string_view name;       // tokenizer.ggml.pre
  std::string_view split;      // empty: the expression of GPT-2
  bool composes;               // text is normalized to NFC
  bool ignore_merges;          // a piece that is a token is not split
  bool adds_bos;               // if the file does not say
  bool splits_digits = false;  // each digit is a piece, before `split`
  bool sentencepiece = false;
};
// tokenizer.ggml.model "llama", which has no tokenizer.ggml.pre.
constexpr TokenizerKind kSentencePiece{"", "", false, false, true, false, true};
constexpr std::array kKinds = {
    TokenizerKind{"llama-bpe",
                  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                  R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                  false, true, true},
    TokenizerKind{"qwen2",
                  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                  R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                  true, false, false},
    TokenizerKind{"gpt-2", "", false, false, false},
    TokenizerKind{"smollm", "", false, false, false, true},
    TokenizerKind{"tekken",
                  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                  R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                  false, true, true},
};

// Other names that converters write for the same kind.
struct KindAlias {
  std::string_view name;
  std::string_view kind;
};
constexpr std::array kAliases = {KindAlias{"llama3", "llama-bpe"},
                                 KindAlias{"llama-v3", "llama-bpe"},
                                 KindAlias{"deepseek-r1-qwen", "qwen2"},
                                 KindAlias{"starcoder", "smollm"}, KindAlias{"refact", "smollm"}};

Error missing_key(std::string_view key) {
  return invalid_argument(fmt::format("metadata \"{}\": is missing", key));
}

Result<TokenizerKind> read_kind(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto model, metadata.text("tokenizer.ggml.model"));
  if (!model) return missing_key("tokenizer.ggml.model");
  if (*model == "llama") return kSentencePiece;
  if (*model != "gpt2") {
    return unsupported(fmt::format(
        "metadata \"tokenizer.ggml.model\": {} is not supported; expected gpt2 or llama",
        quote_text(*model)));
  }
  ASSIGN_OR_RETURN(const auto name, metadata.text("tokenizer.ggml.pre"));
  if (!name) return missing_key("tokenizer.ggml.pre");
  std::string_view kind_name = *name;
  for (const KindAlias& alias : kAliases) {
    if (alias.name == *name) kind_name = alias.kind;
  }
  for (const TokenizerKind& kind : kKinds) {
    if (kind.name == kind_name) return kind;
  }
  return unsupported(
      fmt::format("metadata \"tokenizer.ggml.pre\": {} is not supported; expected "
                  "llama-bpe, qwen2, gpt-2, smollm or tekken",
                  quote_text(*name)));
}

// JSON holds UTF-8 alone; other bytes would be replaced, and the token would be another one.
Status check_utf8(std::string_view key, std::string_view text) {
  if (!utf8::find_invalid(text)) return {};
  return invalid_argument(
      fmt::format("metadata \"{}\": {} is not valid UTF-8", key, quote_text(text)));
}

Result<std::vector<std::string_view>> required_texts(const GgufMetadata& metadata,
                                                     std::string_view key) {
  ASSIGN_OR_RETURN(auto texts, metadata.texts(key));
  if (!texts) return missing_key(key);
  for (const std::string_view text : *texts) RETURN_IF_ERROR(check_utf8(key, text));
  return *std::move(texts);
}

nlohmann::json added_entry(std::size_t id, std::string_view content, bool special) {
  nlohmann::json entry = nlohmann::json::object();
  entry["id"] = id;
  entry["content"] = content;
  for (const char* name : {"single_word", "lstrip", "rstrip", "normalized"}) entry[name] = false;
  entry["special"] = special;
  return entry;
}

bool is_special(std::int64_t type) { return type == kControl || type == kUnknown; }
bool is_added(std::int64_t type) { return is_special(type) || type == kUserDefined; }

// The types of the tokens, one for each.
Result<std::vector<std::int64_t>> token_types(const GgufMetadata& metadata, std::size_t tokens) {
  ASSIGN_OR_RETURN(auto types, metadata.integers(kTypes));
  if (!types) return missing_key(kTypes);
  if (types->size() == tokens) return *std::move(types);
  return invalid_argument(
      fmt::format("metadata \"{}\": has {} entries; expected {}, one for each token", kTypes,
                  types->size(), tokens));
}

// Puts each token into `vocabulary` or, if it is matched in the text before that is split, into
// `added`. Added tokens below others are in both, as on the Hub, so that numbers have no holes.
Status sort_tokens(const GgufMetadata& metadata, nlohmann::json& vocabulary,
                   nlohmann::json& added) {
  ASSIGN_OR_RETURN(const auto tokens, required_texts(metadata, kTokens));
  ASSIGN_OR_RETURN(const auto types, token_types(metadata, tokens.size()));
  std::size_t ordinary = types.size();  // ends with the last ordinary token
  while (ordinary > 0 && is_added(types[ordinary - 1])) --ordinary;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::int64_t type = types[id];
    if (is_added(type)) added.push_back(added_entry(id, tokens[id], is_special(type)));
    if (is_added(type) && id >= ordinary) continue;
    if (!vocabulary.emplace(std::string(tokens[id]), id).second) {
      return invalid_argument(
          fmt::format("metadata \"{}\": {} is given twice", kTokens, quote_text(tokens[id])));
    }
  }
  return {};
}

nlohmann::json byte_level(bool use_regex) {
  nlohmann::json step = nlohmann::json::object();
  step["type"] = "ByteLevel";
  step["add_prefix_space"] = false;
  step["use_regex"] = use_regex;
  return step;
}

nlohmann::json split_at(std::string_view expression) {
  nlohmann::json split = nlohmann::json::object();
  split["type"] = "Split";
  split["pattern"]["Regex"] = expression;
  split["behavior"] = "Isolated";
  split["invert"] = false;
  return split;
}

nlohmann::json pre_tokenizer_of(const TokenizerKind& kind) {
  nlohmann::json sequence = nlohmann::json::object();
  sequence["type"] = "Sequence";
  nlohmann::json& steps = sequence["pretokenizers"] = nlohmann::json::array();
  if (kind.splits_digits) steps.push_back(split_at(R"(\p{N})"));
  if (!kind.split.empty()) steps.push_back(split_at(kind.split));
  steps.push_back(byte_level(kind.split.empty()));
  return sequence;
}

// The text of the token that `key` names by its number; nothing if the file does not have the key.
Result<std::optional<std::string_view>> named_token(const GgufMetadata& metadata,
                                                    std::string_view key) {
  ASSIGN_OR_RETURN(const auto id, metadata.whole_number(key));
  if (!id) return std::nullopt;
  ASSIGN_OR_RETURN(const auto tokens, required_texts(metadata, kTokens));
  if (*id >= tokens.size()) {
    return invalid_argument(
        fmt::format("metadata \"{}\": is {}; expected a token below {}", key, *id, tokens.size()));
  }
  return tokens[static_cast<std::size_t>(*id)];
}

// {"type": type, key: value}
nlohmann::json step_of(const char* type, const char* key, const char* value) {
  nlohmann::json step = nlohmann::json::object();
  step["type"] = type;
  if (key != nullptr) step[key] = value;
  return step;
}

// Spaces become U+2581, one of which precedes the text, and back.
void write_space_steps(nlohmann::json& root, bool add_prefix) {
  constexpr const char* kSpace = "\u2581";
  const auto replace = [](const char* from, const char* to) {
    nlohmann::json step = step_of("Replace", "content", to);
    step["pattern"]["String"] = from;
    return step;
  };
  nlohmann::json& normalizer = root["normalizer"];
  normalizer["type"] = "Sequence";
  nlohmann::json& steps = normalizer["normalizers"] = nlohmann::json::array();
  if (add_prefix) steps.push_back(step_of("Prepend", "prepend", kSpace));
  steps.push_back(replace(" ", kSpace));
  nlohmann::json& decoder = root["decoder"];
  decoder["type"] = "Sequence";
  nlohmann::json& back = decoder["decoders"] = nlohmann::json::array();
  back.push_back(replace(kSpace, " "));
  back.push_back(step_of("ByteFallback", nullptr, nullptr));
  back.push_back(step_of("Fuse", nullptr, nullptr));
  if (!add_prefix) return;
  nlohmann::json strip = step_of("Strip", "content", " ");
  strip["start"] = 1;
  strip["stop"] = 0;
  back.push_back(std::move(strip));
}

Result<std::vector<ScoredPiece>> read_pieces(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto tokens, required_texts(metadata, kTokens));
  ASSIGN_OR_RETURN(const auto types, token_types(metadata, tokens.size()));
  ASSIGN_OR_RETURN(const auto scores, metadata.real_numbers(kScores));
  if (!scores) return missing_key(kScores);
  if (scores->size() != tokens.size()) {
    return invalid_argument(
        fmt::format("metadata \"{}\": has {} entries; expected {}, one for each token", kScores,
                    scores->size(), tokens.size()));
  }
  std::vector<ScoredPiece> pieces;
  pieces.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!std::isfinite((*scores)[id])) {
      return invalid_argument(fmt::format("metadata \"{}\": the score of {} is not finite", kScores,
                                          quote_text(tokens[id])));
    }
    if (types[id] == kOrdinary && tokens[id].size() > kMaxPieceBytes) {
      return invalid_argument(fmt::format("metadata \"{}\": entry {} has {} bytes; the limit is {}",
                                          kTokens, id, tokens[id].size(), kMaxPieceBytes));
    }
    pieces.push_back({tokens[id], (*scores)[id], types[id] == kOrdinary});
  }
  return pieces;
}

// As transformers converts such tokenizers of Llama 2 and its relatives.
Result<std::string> sentencepiece_json(const GgufMetadata& metadata) {
  nlohmann::json root = nlohmann::json::object();
  root["version"] = "1.0";
  root["added_tokens"] = nlohmann::json::array();
  ASSIGN_OR_RETURN(const auto add_prefix, metadata.flag("tokenizer.ggml.add_space_prefix"));
  write_space_steps(root, add_prefix.value_or(true));
  nlohmann::json& model = root["model"];
  model["type"] = "BPE";
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  model["vocab"] = nlohmann::json::object();
  RETURN_IF_ERROR(sort_tokens(metadata, model["vocab"], root["added_tokens"]));
  ASSIGN_OR_RETURN(const auto unknown, named_token(metadata, "tokenizer.ggml.unknown_token_id"));
  if (unknown) model["unk_token"] = *unknown;
  ASSIGN_OR_RETURN(const auto pieces, read_pieces(metadata));
  nlohmann::json& merges = model["merges"] = nlohmann::json::array();
  for (const PieceMerge& merge : merges_of_pieces(pieces)) {
    nlohmann::json pair = nlohmann::json::array();
    pair.push_back(merge.left);
    pair.push_back(merge.right);
    merges.push_back(std::move(pair));
  }
  return dump_json(root);
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const TokenizerKind kind, read_kind(metadata));
  if (kind.sentencepiece) return sentencepiece_json(metadata);
  nlohmann::json root = nlohmann::json::object();
  root["version"] = "1.0";
  root["added_tokens"] = nlohmann::json::array();
  if (kind.composes) root["normalizer"]["type"] = "NFC";
  root["pre_tokenizer"] = pre_tokenizer_of(kind);
  root["decoder"]["type"] = "ByteLevel";
  nlohmann::json& model = root["model"];
  model["type"] = "BPE";
  model["ignore_merges"] = kind.ignore_merges;
  model["vocab"] = nlohmann::json::object();
  RETURN_IF_ERROR(sort_tokens(metadata, model["vocab"], root["added_tokens"]));
  ASSIGN_OR_RETURN(const auto merges, required_texts(metadata, kMerges));
  nlohmann::json& list = model["merges"] = nlohmann::json::array();
  for (const std::string_view merge : merges) list.push_back(merge);
  return dump_json(root);
}

Result<std::string> gguf_tokenizer_config_json(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const TokenizerKind kind, read_kind(metadata));
  nlohmann::json root = nlohmann::json::object();
  ASSIGN_OR_RETURN(const auto bos, named_token(metadata, "tokenizer.ggml.bos_token_id"));
  if (bos) root["bos_token"] = *bos;
  ASSIGN_OR_RETURN(const auto eos, named_token(metadata, "tokenizer.ggml.eos_token_id"));
  if (eos) root["eos_token"] = *eos;
  ASSIGN_OR_RETURN(const auto adds_bos, metadata.flag("tokenizer.ggml.add_bos_token"));
  root["add_bos_token"] = adds_bos.value_or(kind.adds_bos);
  ASSIGN_OR_RETURN(const auto adds_eos, metadata.flag("tokenizer.ggml.add_eos_token"));
  root["add_eos_token"] = adds_eos.value_or(false);
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  ASSIGN_OR_RETURN(const auto chat_template, metadata.text(kTemplate));
  if (chat_template) {
    RETURN_IF_ERROR(check_utf8(kTemplate, *chat_template));
    root["chat_template"] = *chat_template;
  }
  return dump_json(root);
}

}  // namespace sluice
