#include "tokenizer/pipeline_json.h"

#include <simdjson.h>

#include <utility>

#include "base/utf8.h"
#include "tokenizer/vocabulary.h"

namespace sluice {
namespace {

using json::Element;

// The limit of steps; sequences may be nested.
constexpr std::size_t kMaxSteps = 1000;

Error not_supported(const std::string& path, std::string_view field, std::string_view value) {
  return unsupported(json::join_path(path, field) + " '" + std::string(value) +
                     "' is not supported");
}

// Calls read(element, its path) for each element of the array node[key].
template <class Read>
Status for_each(const Element& node, const std::string& path, std::string_view key,
                const Read& read) {
  const std::string array_path = json::join_path(path, key);
  Element field;
  simdjson::dom::array array;
  if (!json::find(node, key, field) || field.get(array) != simdjson::SUCCESS) {
    return json::wrong_type(array_path, "an array");
  }
  std::size_t index = 0;
  for (const Element element : array) {
    if (index == kMaxSteps) return invalid_argument(array_path + " has more than 1000 elements");
    RETURN_IF_ERROR(read(element, json::index_path(array_path, index)));
    ++index;
  }
  return {};
}

struct Pattern {
  std::string_view text;
  bool is_regex = false;
};

// {"String": "x"} or {"Regex": "x"}.
Result<Pattern> read_pattern(const Element& node, const std::string& path) {
  const std::string pattern_path = json::join_path(path, "pattern");
  Element field;
  if (!json::find(node, "pattern", field)) {
    return json::wrong_type(pattern_path, "{\"String\": ..} or {\"Regex\": ..}");
  }
  Pattern pattern;
  Element kind;
  pattern.is_regex = json::find(field, "Regex", kind);
  ASSIGN_OR_RETURN(pattern.text,
                   json::string_field(field, pattern_path, pattern.is_regex ? "Regex" : "String"));
  if (pattern.text.empty()) return invalid_argument(pattern_path + " must not be empty");
  return pattern;
}

Result<Regex> compile(std::string_view regex, const std::string& path) {
  auto compiled = Regex::compile(regex);
  if (!compiled) return with_context(json::join_path(path, "pattern"), compiled.error());
  return compiled;
}

// Reads a field that must be one character: `replacement` or `content`.
Result<std::string> read_character(const Element& node, const std::string& path,
                                   std::string_view key) {
  ASSIGN_OR_RETURN(const std::string_view text, json::string_field(node, path, key));
  if (text.empty() || utf8::decode(text, 0).bytes != text.size()) {
    return json::wrong_type(json::join_path(path, key), "one character");
  }
  return std::string(text);
}

Result<ReplaceStep> read_replace(const Element& node, const std::string& path) {
  ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(node, path));
  ASSIGN_OR_RETURN(const std::string_view content, json::string_field(node, path, "content"));
  if (!pattern.is_regex) return ReplaceStep{std::string(pattern.text), std::string(content)};
  ASSIGN_OR_RETURN(Regex regex, compile(pattern.text, path));
  return ReplaceStep{std::move(regex), std::string(content)};
}

Result<SplitBehavior> read_behavior(const Element& node, const std::string& path,
                                    std::optional<SplitBehavior> absent) {
  Element field;
  if (absent && !json::find(node, "behavior", field)) return *absent;
  ASSIGN_OR_RETURN(const std::string_view name, json::string_field(node, path, "behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return not_supported(path, "behavior", name);
}

Result<SplitStep> read_split(const Element& node, const std::string& path) {
  ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(node, path));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(node, path, std::nullopt));
  ASSIGN_OR_RETURN(const bool invert, json::bool_field(node, path, "invert"));
  const MatchSense sense = invert ? MatchSense::kInverted : MatchSense::kMatches;
  if (!pattern.is_regex) return SplitStep{std::string(pattern.text), behavior, sense};
  if (const auto known = recognize_pattern(pattern.text)) {
    return SplitStep{*known, behavior, sense};
  }
  ASSIGN_OR_RETURN(Regex regex, compile(pattern.text, path));
  return SplitStep{std::move(regex), behavior, sense};
}

Status read_byte_level(const Element& node, const std::string& path,
                       std::vector<PreTokenizerStep>& steps) {
  ASSIGN_OR_RETURN(const bool prefix, json::bool_field(node, path, "add_prefix_space"));
  ASSIGN_OR_RETURN(const bool use_regex, json::bool_field(node, path, "use_regex", true));
  if (prefix) steps.emplace_back(PrefixSpaceStep{});
  if (use_regex) steps.emplace_back(SplitStep{KnownPattern::kGpt2});
  steps.emplace_back(ByteLettersStep{});
  return {};
}

Result<PrependScheme> read_prepend_scheme(const Element& node, const std::string& path) {
  ASSIGN_OR_RETURN(const bool prefix, json::bool_field(node, path, "add_prefix_space", true));
  Element field;
  if (!json::find(node, "prepend_scheme", field)) {
    return prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  ASSIGN_OR_RETURN(const std::string_view name, json::string_field(node, path, "prepend_scheme"));
  if (!prefix && name != "never") {
    return invalid_argument(json::join_path(path, "prepend_scheme") +
                            " must be \"never\" when add_prefix_space is false");
  }
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  return not_supported(path, "prepend_scheme", name);
}

Status read_metaspace(const Element& node, const std::string& path,
                      std::vector<PreTokenizerStep>& steps) {
  ASSIGN_OR_RETURN(const std::string replacement, read_character(node, path, "replacement"));
  ASSIGN_OR_RETURN(const PrependScheme scheme, read_prepend_scheme(node, path));
  ASSIGN_OR_RETURN(const bool split, json::bool_field(node, path, "split", true));
  steps.emplace_back(MetaspaceStep{replacement, scheme});
  if (split) steps.emplace_back(SplitStep{replacement, SplitBehavior::kMergedWithNext});
  return {};
}

}  // namespace

Status read_normalizer(const Element& node, const std::string& path,
                       std::vector<NormalizerStep>& steps) {
  ASSIGN_OR_RETURN(const std::string_view type, json::string_field(node, path, "type"));
  if (steps.size() > kMaxSteps) return invalid_argument(path + " has more than 1000 steps");
  if (type == "Sequence") {
    return for_each(node, path, "normalizers", [&](const Element& e, const std::string& p) {
      return read_normalizer(e, p, steps);
    });
  }
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(const std::string_view text, json::string_field(node, path, "prepend"));
    steps.emplace_back(PrependStep{std::string(text)});
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(ReplaceStep step, read_replace(node, path));
    steps.emplace_back(std::move(step));
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, json::bool_field(node, path, "strip_left"));
    ASSIGN_OR_RETURN(const bool right, json::bool_field(node, path, "strip_right"));
    steps.emplace_back(StripStep{left, right});
  } else if (type == "NFC") {
    steps.emplace_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps.emplace_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps.emplace_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    steps.emplace_back(LowercaseStep{});
  } else if (type == "StripAccents") {
    steps.emplace_back(StripAccentsStep{});
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteLevelStep{});
  } else {
    return not_supported(path, "type", type);
  }
  return {};
}

Status read_pre_tokenizer(const Element& node, const std::string& path,
                          std::vector<PreTokenizerStep>& steps) {
  using enum SplitBehavior;
  ASSIGN_OR_RETURN(const std::string_view type, json::string_field(node, path, "type"));
  if (steps.size() > kMaxSteps) return invalid_argument(path + " has more than 1000 steps");
  if (type == "Sequence") {
    return for_each(node, path, "pretokenizers", [&](const Element& e, const std::string& p) {
      return read_pre_tokenizer(e, p, steps);
    });
  }
  if (type == "ByteLevel") return read_byte_level(node, path, steps);
  if (type == "Metaspace") return read_metaspace(node, path, steps);
  if (type == "Split") {
    ASSIGN_OR_RETURN(SplitStep step, read_split(node, path));
    steps.emplace_back(std::move(step));
  } else if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool each, json::bool_field(node, path, "individual_digits"));
    steps.emplace_back(SplitStep{unicode::kNumeric, each ? kIsolated : kContiguous});
  } else if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(node, path, kIsolated));
    steps.emplace_back(SplitStep{unicode::kPunctuation, behavior});
  } else if (type == "Whitespace") {
    steps.emplace_back(WordsStep{});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(SplitStep{unicode::kSpace, kRemoved});
  } else if (type == "BertPreTokenizer") {
    steps.emplace_back(SplitStep{unicode::kSpace, kRemoved});
    steps.emplace_back(SplitStep{unicode::kPunctuation, kIsolated});
  } else if (type == "CharDelimiterSplit") {
    ASSIGN_OR_RETURN(std::string delimiter, read_character(node, path, "delimiter"));
    steps.emplace_back(SplitStep{std::move(delimiter), kRemoved});
  } else if (type == "FixedLength") {
    ASSIGN_OR_RETURN(const std::uint64_t length, json::count_field(node, path, "length", 5));
    if (length == 0) return json::wrong_type(json::join_path(path, "length"), "at least 1");
    steps.emplace_back(FixedLengthStep{length});
  } else {
    return not_supported(path, "type", type);
  }
  return {};
}

namespace {

// Collects decoder steps into the three stages of TokenDecoder.
class DecoderReader {
 public:
  Status read(const Element& node, const std::string& path) {
    ASSIGN_OR_RETURN(const std::string_view type, json::string_field(node, path, "type"));
    if (piece_steps_.size() + text_steps_.size() > kMaxSteps) {
      return invalid_argument(path + " has more than 1000 steps");
    }
    if (type == "Sequence") {
      return for_each(node, path, "decoders",
                      [&](const Element& e, const std::string& p) { return read(e, p); });
    }
    if (type == "Fuse") {
      stage_ = Stage::kText;
      return {};
    }
    if (stage_ == Stage::kBytes) {
      return unsupported(path + ".type '" + std::string(type) +
                         "' is not supported between ByteFallback and Fuse");
    }
    if (type == "Replace") return read_replacement(node, path);
    if (type == "Strip") return read_strip(node, path);
    const bool joins = type == "ByteLevel" || type == "ByteFallback";
    if (stage_ == Stage::kText && (joins || type == "Metaspace")) {
      return unsupported(path + ".type '" + std::string(type) +
                         "' is not supported after the tokens are joined");
    }
    if (type == "Metaspace") {
      ASSIGN_OR_RETURN(std::string replacement, read_character(node, path, "replacement"));
      ASSIGN_OR_RETURN(const PrependScheme scheme, read_prepend_scheme(node, path));
      piece_steps_.emplace_back(
          MetaspacePieceStep{std::move(replacement), scheme != PrependScheme::kNever});
      return {};
    }
    if (!joins) return not_supported(path, "type", type);
    join_ = type == "ByteLevel" ? TokenJoin::kByteLevel : TokenJoin::kByteFallback;
    stage_ = type == "ByteLevel" ? Stage::kText : Stage::kBytes;
    return {};
  }

  TokenDecoder take() && { return {std::move(piece_steps_), join_, std::move(text_steps_)}; }

 private:
  enum class Stage { kPieces, kBytes, kText };

  Status read_replacement(const Element& node, const std::string& path) {
    ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(node, path));
    if (pattern.is_regex) return unsupported(path + ".pattern.Regex is not supported in decoders");
    ASSIGN_OR_RETURN(const std::string_view content, json::string_field(node, path, "content"));
    ReplacePieceStep step{std::string(pattern.text), std::string(content)};
    if (stage_ == Stage::kText) {
      text_steps_.emplace_back(std::move(step));
    } else {
      piece_steps_.emplace_back(std::move(step));
    }
    return {};
  }

  Status read_strip(const Element& node, const std::string& path) {
    ASSIGN_OR_RETURN(std::string content, read_character(node, path, "content"));
    ASSIGN_OR_RETURN(const std::uint64_t start, json::count_field(node, path, "start"));
    ASSIGN_OR_RETURN(const std::uint64_t stop, json::count_field(node, path, "stop"));
    if (stage_ == Stage::kPieces) {
      piece_steps_.emplace_back(StripPieceStep{std::move(content), start, stop});
    } else if (stop != 0) {
      // A stream does not know the end of its text.
      return unsupported(path + ".stop other than 0 is not supported after the tokens are joined");
    } else {
      text_steps_.emplace_back(StripTextStep{std::move(content), start});
    }
    return {};
  }

  Stage stage_ = Stage::kPieces;
  TokenJoin join_ = TokenJoin::kPlain;
  std::vector<PieceStep> piece_steps_;
  std::vector<TextStep> text_steps_;
};

Result<TokenId> read_id(const Element& node, const std::string& path) {
  std::uint64_t id = 0;
  if (node.get(id) != simdjson::SUCCESS || id >= Vocabulary::kMaxTokens) {
    return json::wrong_type(path, "a token id");
  }
  return static_cast<TokenId>(id);
}

// The ids of special_tokens[name].
Status read_special(const Element& node, const std::string& path, std::string_view name,
                    std::vector<TokenId>& out) {
  Element all;
  Element special;
  const std::string special_path = path + ".special_tokens['" + std::string(name) + "']";
  if (!json::find(node, "special_tokens", all) || !json::find(all, name, special)) {
    return invalid_argument(special_path + " is missing, but the template uses it");
  }
  return for_each(special, special_path, "ids",
                  [&](const Element& e, const std::string& p) -> Status {
                    ASSIGN_OR_RETURN(const TokenId id, read_id(e, p));
                    out.push_back(id);
                    return {};
                  });
}

Result<SpecialsTemplate> read_template(const Element& node, const std::string& path) {
  SpecialsTemplate result;
  std::size_t sequences = 0;
  RETURN_IF_ERROR(
      for_each(node, path, "single", [&](const Element& e, const std::string& p) -> Status {
        Element piece;
        if (json::find(e, "Sequence", piece)) {
          ++sequences;
          return {};
        }
        if (!json::find(e, "SpecialToken", piece)) {
          return json::wrong_type(p, "a Sequence or a SpecialToken");
        }
        ASSIGN_OR_RETURN(const std::string_view name, json::string_field(piece, p, "id"));
        return read_special(node, path, name, sequences == 0 ? result.prefix : result.suffix);
      }));
  if (sequences != 1) return unsupported(path + ".single must have exactly one Sequence");
  return result;
}

// ["</s>", 2]
Result<TokenId> read_named_id(const Element& node, const std::string& path, std::string_view key) {
  Element field;
  Element id;
  const std::string pair_path = json::join_path(path, key);
  if (!json::find(node, key, field) || field.at(1).get(id) != simdjson::SUCCESS) {
    return json::wrong_type(pair_path, "a pair of a token and its id");
  }
  return read_id(id, pair_path + "[1]");
}

}  // namespace

Result<TokenDecoder> read_decoder(const Element& node, const std::string& path) {
  DecoderReader reader;
  RETURN_IF_ERROR(reader.read(node, path));
  return std::move(reader).take();
}

Status read_post_processor(const Element& node, const std::string& path,
                           SpecialsTemplate& specials) {
  ASSIGN_OR_RETURN(const std::string_view type, json::string_field(node, path, "type"));
  if (type == "Sequence") {
    return for_each(node, path, "processors", [&](const Element& e, const std::string& p) {
      return read_post_processor(e, p, specials);
    });
  }
  if (type == "ByteLevel") return {};  // moves offsets only
  SpecialsTemplate around;
  if (type == "TemplateProcessing") {
    ASSIGN_OR_RETURN(around, read_template(node, path));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    ASSIGN_OR_RETURN(const TokenId start, read_named_id(node, path, "cls"));
    ASSIGN_OR_RETURN(const TokenId end, read_named_id(node, path, "sep"));
    around = {{start}, {end}};
  } else {
    return not_supported(path, "type", type);
  }
  specials.prefix.insert(specials.prefix.begin(), around.prefix.begin(), around.prefix.end());
  specials.suffix.insert(specials.suffix.end(), around.suffix.begin(), around.suffix.end());
  if (specials.prefix.size() + specials.suffix.size() > kMaxSteps) {
    return invalid_argument(path + " adds more than 1000 tokens");
  }
  return {};
}

}  // namespace sluice
