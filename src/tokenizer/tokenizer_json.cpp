#include "tokenizer/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/json_depth.h"
#include "base/json_text.h"
#include "base/log.h"
#include "tokenizer/model_json.h"
#include "tokenizer/pipeline_json.h"

namespace sluice {
namespace {

using json::Element;

// The document lives as long as the parser that parsed it. The text is made strict only when the
// parser refuses it, because checking every character would double the time for a large
// tokenizer.json.
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

// Fills in the texts that are searched. Tokens flagged `normalized` are searched in normalized
// text, so their text is normalized too.
Status find_searched_texts(TokenizerDefinition& definition) {
  NormalizerScratch scratch;
  std::array<std::vector<std::string_view>, 2> searched;  // in the original and in normalized text
  definition.searched_texts.reserve(definition.added_tokens.size());
  for (const AddedToken& token : definition.added_tokens) {
    std::string text = token.content;
    if (token.normalized) RETURN_IF_ERROR(definition.steps.normalizer.run(text, scratch));
    if (text.empty()) {
      return unsupported("added_tokens: the normalizer leaves nothing of '" + token.content + "'");
    }
    definition.searched_texts.push_back(std::move(text));
    searched[token.normalized ? 1 : 0].push_back(definition.searched_texts.back());
  }
  for (auto& texts : searched) {
    std::sort(texts.begin(), texts.end());
    const auto twice = std::adjacent_find(texts.begin(), texts.end());
    if (twice != texts.end()) {
      return invalid_argument("added_tokens: '" + std::string(*twice) + "' occurs twice");
    }
  }
  return {};
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

Status check_specials(const TokenizerDefinition& definition) {
  const auto is_token = [&](TokenId id) {
    return definition.model.vocabulary().contains(id) ||
           std::any_of(definition.added_tokens.begin(), definition.added_tokens.end(),
                       [&](const AddedToken& token) { return token.id == id; });
  };
  for (const auto* ids : {&definition.steps.specials.prefix, &definition.steps.specials.suffix}) {
    for (const TokenId id : *ids) {
      if (is_token(id)) continue;
      return invalid_argument("post_processor: token id " + std::to_string(id) +
                              " is no token of model.vocab or added_tokens");
    }
  }
  return {};
}

}  // namespace

Result<TokenizerDefinition> read_tokenizer_json(std::string_view text) {
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
  ASSIGN_OR_RETURN(ModelInImage model, read_model(field, added));

  TokenizerDefinition definition{.image = std::move(model.image),
                                 .model = model.model,
                                 .steps = {.normalizer = TextNormalizer(std::move(normalizer)),
                                           .has_pre_tokenizer = !pre_tokenizer.empty(),
                                           .pre_tokenizer = PreTokenizer(std::move(pre_tokenizer)),
                                           .decoder = std::move(decoder),
                                           .specials = std::move(specials)},
                                 .added_tokens = std::move(added)};
  RETURN_IF_ERROR(check_specials(definition));
  RETURN_IF_ERROR(find_searched_texts(definition));
  const std::vector<TokenId>& prefix = definition.steps.specials.prefix;
  if (prefix.size() == 1) definition.steps.bos = prefix.front();
  return definition;
}

namespace {

// "<s>" or {"content": "<s>", ..}; nothing when it is absent or no token.
Result<std::optional<TokenId>> read_token(const Element& root, std::string_view key,
                                          const TokenizerDefinition& definition) {
  Element field;
  if (!json::find(root, key, field)) return std::optional<TokenId>();
  const bool is_object = field.is_object();
  ASSIGN_OR_RETURN(const std::string_view text, is_object
                                                    ? json::string_field(field, key, "content")
                                                    : json::string_field(root, "", key));
  for (const AddedToken& token : definition.added_tokens) {
    if (token.content == text) return std::optional<TokenId>(token.id);
  }
  const auto id = definition.model.vocabulary().find(text);
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

Status apply_tokenizer_config(std::string_view text, TokenizerDefinition& definition) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const Element root, parse(parser, text));
  ASSIGN_OR_RETURN(const std::optional<TokenId> bos, read_token(root, "bos_token", definition));
  if (bos) definition.steps.bos = bos;
  ASSIGN_OR_RETURN(definition.steps.eos, read_token(root, "eos_token", definition));
  auto& specials = definition.steps.specials;
  RETURN_IF_ERROR(apply_add(root, "add_bos_token", definition.steps.bos, specials.prefix, true));
  return apply_add(root, "add_eos_token", definition.steps.eos, specials.suffix, false);
}

}  // namespace sluice
