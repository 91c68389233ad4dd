#include "tokenizer/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "base/json_depth.h"
#include "base/json_text.h"
#include "base/log.h"
#include "tokenizer/model_json.h"
#include "tokenizer/pipeline_json.h"

namespace sluice {
namespace {

using json::Element;

// The document lives as long as the parser that parsed it. The text is made strict only when the
// parser refuses it: a look at every character would double the time of a large tokenizer.json.
Result<Element> parse(simdjson::dom::parser& parser, std::string_view text) {
  Element root;
  auto error = parser.allocate(text.size(), kMaxJsonDepth);
  if (error == simdjson::SUCCESS) error = parser.parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS) {
    std::string storage;
    ASSIGN_OR_RETURN(const std::string_view strict, strict_json(text, storage));
    error = parser.parse(strict.data(), strict.size()).get(root);
  }
  if (error != simdjson::SUCCESS) {
    return invalid_argument(std::string("not valid JSON: ") + simdjson::error_message(error));
  }
  if (!root.is_object()) return invalid_argument("must be a JSON object");
  return root;
}

struct Matchers {
  std::vector<AddedTokenMatcher::Pattern> raw;
  std::vector<AddedTokenMatcher::Pattern> normalized;
};

// Tokens flagged `normalized` are looked for in normalized text, so as normalized text.
Result<Matchers> make_patterns(TokenizerParts& parts) {
  Matchers matchers;
  NormalizerScratch scratch;
  for (const AddedToken& token : parts.added_tokens) {
    std::string text = token.content;
    if (token.normalized) RETURN_IF_ERROR(parts.normalizer.run(text, scratch));
    if (text.empty()) {
      return unsupported("added_tokens: the normalizer leaves nothing of '" + token.content + "'");
    }
    parts.normalized_texts.push_back(text);
    (token.normalized ? matchers.normalized : matchers.raw)
        .push_back({std::move(text), token.id, token.special, token.lstrip, token.rstrip,
                    token.single_word});
  }
  for (const auto* patterns : {&matchers.raw, &matchers.normalized}) {
    std::vector<std::string_view> texts;
    for (const auto& pattern : *patterns) texts.push_back(pattern.text);
    std::sort(texts.begin(), texts.end());
    const auto twice = std::adjacent_find(texts.begin(), texts.end());
    if (twice != texts.end()) {
      return invalid_argument("added_tokens: '" + std::string(*twice) + "' occurs twice");
    }
  }
  return matchers;
}

Status read_version(const Element& root) {
  Element field;
  if (!json::find(root, "version", field)) return {};
  ASSIGN_OR_RETURN(const std::string_view version, json::string_field(root, "", "version"));
  if (version != "1.0") {
    return unsupported("version '" + std::string(version) + "' is not supported; 1.0 is");
  }
  return {};
}

Status check_specials(const TokenizerParts& parts) {
  const auto is_token = [&](TokenId id) {
    return parts.model.vocabulary().contains(id) ||
           std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                       [&](const AddedToken& token) { return token.id == id; });
  };
  for (const auto* ids : {&parts.specials.prefix, &parts.specials.suffix}) {
    for (const TokenId id : *ids) {
      if (is_token(id)) continue;
      return invalid_argument("post_processor: token id " + std::to_string(id) +
                              " is no token of model.vocab or added_tokens");
    }
  }
  return {};
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(std::string_view text) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const Element root, parse(parser, text));
  RETURN_IF_ERROR(read_version(root));
  Element field;
  std::vector<AddedToken> added;
  if (json::find(root, "added_tokens", field)) {
    ASSIGN_OR_RETURN(added, read_added_tokens(field));
  }
  std::vector<NormalizerStep> normalizer;
  if (json::find(root, "normalizer", field)) {
    RETURN_IF_ERROR(read_normalizer(field, "normalizer", normalizer));
  }
  std::vector<PreTokenizerStep> pre_tokenizer;
  if (json::find(root, "pre_tokenizer", field)) {
    RETURN_IF_ERROR(read_pre_tokenizer(field, "pre_tokenizer", pre_tokenizer));
  }
  TokenDecoder decoder;
  if (json::find(root, "decoder", field)) {
    ASSIGN_OR_RETURN(decoder, read_decoder(field, "decoder"));
  }
  SpecialsTemplate specials;
  if (json::find(root, "post_processor", field)) {
    RETURN_IF_ERROR(read_post_processor(field, "post_processor", specials));
  }
  if (!json::find(root, "model", field)) return json::wrong_type("model", "an object");
  ASSIGN_OR_RETURN(BpeModel model, read_model(field, added));

  TokenizerParts parts{.model = std::move(model),
                       .normalizer = TextNormalizer(std::move(normalizer)),
                       .has_pre_tokenizer = !pre_tokenizer.empty(),
                       .pre_tokenizer = PreTokenizer(std::move(pre_tokenizer)),
                       .decoder = std::move(decoder),
                       .specials = std::move(specials),
                       .added_tokens = std::move(added)};
  parts.vocab_size = id_limit(parts.model.vocabulary(), parts.added_tokens);
  RETURN_IF_ERROR(check_specials(parts));
  ASSIGN_OR_RETURN(Matchers matchers, make_patterns(parts));
  parts.raw_matcher = AddedTokenMatcher(std::move(matchers.raw));
  parts.normalized_matcher = AddedTokenMatcher(std::move(matchers.normalized));
  if (parts.specials.prefix.size() == 1) parts.bos = parts.specials.prefix.front();
  return parts;
}

namespace {

// "<s>" or {"content": "<s>", ..}; nothing when it is absent or no token.
Result<std::optional<TokenId>> read_token(const Element& root, std::string_view key,
                                          const TokenizerParts& parts) {
  Element field;
  if (!json::find(root, key, field)) return std::optional<TokenId>();
  const bool is_object = field.is_object();
  ASSIGN_OR_RETURN(const std::string_view text, is_object
                                                    ? json::string_field(field, key, "content")
                                                    : json::string_field(root, "", key));
  for (const AddedToken& token : parts.added_tokens) {
    if (token.content == text) return std::optional<TokenId>(token.id);
  }
  const auto id = parts.model.vocabulary().find(text);
  if (!id && !text.empty()) {
    log_warning("tokenizer_config.json: " + std::string(key) + " '" + std::string(text) +
                "' is no token of tokenizer.json; it is ignored");
  }
  return id;
}

// Adds the token at the outer end of `ids`, or removes it there, as the field says.
Status apply_add(const Element& root, std::string_view key, std::optional<TokenId> token,
                 std::vector<TokenId>& ids, bool at_front) {
  Element field;
  if (!json::find(root, key, field)) return {};
  ASSIGN_OR_RETURN(const bool wanted, json::bool_field(root, "", key));
  if (!token) {
    if (wanted) {
      log_warning("tokenizer_config.json: " + std::string(key) +
                  " is true, but there is no such token; nothing is added");
    }
    return {};
  }
  const bool has = !ids.empty() && (at_front ? ids.front() : ids.back()) == *token;
  const auto place = at_front ? ids.begin() : ids.end();
  if (wanted && !has) ids.insert(place, *token);
  if (!wanted && has) ids.erase(at_front ? ids.begin() : ids.end() - 1);
  return {};
}

}  // namespace

Status apply_tokenizer_config(std::string_view text, TokenizerParts& parts) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const Element root, parse(parser, text));
  ASSIGN_OR_RETURN(const std::optional<TokenId> bos, read_token(root, "bos_token", parts));
  if (bos) parts.bos = bos;
  ASSIGN_OR_RETURN(parts.eos, read_token(root, "eos_token", parts));
  auto& specials = parts.specials;
  RETURN_IF_ERROR(apply_add(root, "add_bos_token", parts.bos, specials.prefix, true));
  return apply_add(root, "add_eos_token", parts.eos, specials.suffix, false);
}

}  // namespace sluice
