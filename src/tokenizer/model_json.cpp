#include "tokenizer/model_json.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/log.h"
#include "tokenizer/tokenizer_definition.h"

namespace sluice {
namespace {

using json::Element;

constexpr std::string_view kMetaspace = "\u2581";
// simdjson does not know the size of larger arrays and objects.
constexpr std::size_t kMaxMembers = 0xFFFFFF;
constexpr std::size_t kMaxMerges = kMaxMembers - 1;
constexpr std::uint64_t kMaxTextBytes = 0xFFFFFFFE;

Result<BpeOptions> read_options(const Element& node) {
  BpeOptions options;
  Element field;
  if (json::find(node, "dropout", field)) {
    double dropout = 0;
    if (field.get(dropout) != simdjson::SUCCESS) {
      return json::wrong_type("model.dropout", "null or a number");
    }
    if (dropout != 0) return unsupported("model.dropout other than 0 is not supported");
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json::find(node, key, field)) continue;
    ASSIGN_OR_RETURN(const std::string_view text, json::string_field(node, "model", key));
    if (!text.empty()) {
      return unsupported("model." + std::string(key) + " '" + std::string(text) +
                         "' is not supported");
    }
  }
  if (json::find(node, "unk_token", field)) {
    ASSIGN_OR_RETURN(const std::string_view unk, json::string_field(node, "model", "unk_token"));
    options.unk_token = std::string(unk);
  }
  ASSIGN_OR_RETURN(options.fuse_unk, json::bool_field(node, "model", "fuse_unk", false));
  ASSIGN_OR_RETURN(options.byte_fallback, json::bool_field(node, "model", "byte_fallback", false));
  ASSIGN_OR_RETURN(options.ignore_merges, json::bool_field(node, "model", "ignore_merges", false));
  return options;
}

// The id of a token of model.vocab. Token data is stored in arrays by id, so a limit keeps one huge
// id from taking gigabytes.
Result<std::size_t> read_id(std::string_view text, const Element& value) {
  std::uint64_t id = 0;
  const auto name = [&] { return "model.vocab['" + std::string(text.substr(0, 100)) + "']"; };
  if (value.get(id) != simdjson::SUCCESS) return json::wrong_type(name(), "a token id");
  if (id >= Vocabulary::kMaxTokens) {
    return invalid_argument(name() + " is " + std::to_string(id) + "; ids must be below " +
                            std::to_string(Vocabulary::kMaxTokens));
  }
  return static_cast<std::size_t>(id);
}

struct VocabularySize {
  std::size_t tokens = 0;
  std::size_t ids = 0;
  std::uint64_t text_bytes = 0;
};

Result<simdjson::dom::object> find_vocabulary(const Element& node) {
  Element field;
  simdjson::dom::object tokens;
  if (!json::find(node, "vocab", field) || field.get(tokens) != simdjson::SUCCESS) {
    return json::wrong_type("model.vocab", "an object of tokens and their ids");
  }
  return tokens;
}

Result<VocabularySize> measure_vocabulary(const simdjson::dom::object& tokens) {
  VocabularySize size{.tokens = tokens.size()};
  if (size.tokens >= kMaxMembers) {
    return unsupported("model.vocab: 16777215 tokens or more are not supported");
  }
  for (const auto& [text, value] : tokens) {
    ASSIGN_OR_RETURN(const std::size_t id, read_id(text, value));
    size.ids = std::max(size.ids, id + 1);
    size.text_bytes += text.size();
  }
  if (size.text_bytes > kMaxTextBytes) return unsupported("model.vocab: more than 4 GiB of tokens");
  return size;
}

Status read_vocabulary(const simdjson::dom::object& tokens, VocabularyBuilder& vocabulary) {
  for (const auto& [text, value] : tokens) {
    ASSIGN_OR_RETURN(const std::size_t id, read_id(text, value));
    if (auto status = vocabulary.add(text, id); !status) {
      return with_context("model.vocab", status.error());
    }
  }
  return {};
}

struct MergePair {
  std::string_view left;
  std::string_view right;
};

// "a b" or ["a", "b"].
Result<MergePair> read_merge(const Element& node, std::size_t index) {
  const auto wrong = [&] {
    return json::wrong_type(json::index_path("model.merges", index),
                            "\"left right\" or [\"left\", \"right\"]");
  };
  MergePair merge;
  std::string_view text;
  if (node.get(text) == simdjson::SUCCESS) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return wrong();
    merge = {text.substr(0, space), text.substr(space + 1)};
    if (merge.right.find(' ') != std::string_view::npos) return wrong();
    return merge;
  }
  simdjson::dom::array pair;
  if (node.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get(merge.left) != simdjson::SUCCESS ||
      pair.at(1).get(merge.right) != simdjson::SUCCESS) {
    return wrong();
  }
  return merge;
}

// Looks up the three tokens of each merge, a group of merges at a time.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, MergeTableBuilder& table)
      : vocabulary_(vocabulary), table_(table) {
    joined_.reserve(4096);
  }

  Status add(MergePair pair, std::size_t index) {
    merges_[count_++] = {pair, index};
    return count_ == kGroup ? flush() : Status{};
  }

  Status flush() {
    joined_.clear();
    for (std::size_t i = 0; i < count_; ++i) {
      joined_ += merges_[i].pair.left;
      joined_ += merges_[i].pair.right;
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const MergePair& pair = merges_[i].pair;
      const std::size_t size = pair.left.size() + pair.right.size();
      queries_[3 * i].text = pair.left;
      queries_[3 * i + 1].text = pair.right;
      queries_[3 * i + 2].text = std::string_view(joined_).substr(at, size);
      at += size;
    }
    vocabulary_.find_all(std::span(queries_).first(3 * count_));
    for (std::size_t i = 0; i < count_; ++i) {
      table_.view().prefetch(queries_[3 * i].id, queries_[3 * i + 1].id);
    }
    for (std::size_t i = 0; i < count_; ++i) RETURN_IF_ERROR(finish(i));
    count_ = 0;
    return {};
  }

  bool enters_metaspace() const { return enters_metaspace_; }

 private:
  static constexpr std::size_t kGroup = 32;
  struct Numbered {
    MergePair pair;
    std::size_t index;
  };

  Status finish(std::size_t i) {
    for (const Vocabulary::Query& query : std::span(queries_).subspan(3 * i, 3)) {
      if (query.id >= 0) continue;
      return invalid_argument(json::index_path("model.merges", merges_[i].index) + ": token '" +
                              std::string(query.text.substr(0, 100)) + "' is not in model.vocab");
    }
    const MergePair& pair = merges_[i].pair;
    if (pair.right.starts_with(kMetaspace) && !pair.left.ends_with(kMetaspace)) {
      enters_metaspace_ = true;
    }
    table_.add(queries_[3 * i].id, queries_[3 * i + 1].id, {rank_++, queries_[3 * i + 2].id});
    return {};
  }

  const Vocabulary& vocabulary_;
  MergeTableBuilder& table_;
  bool enters_metaspace_ = false;
  std::uint32_t rank_ = 0;
  std::size_t count_ = 0;
  std::array<Numbered, kGroup> merges_{};
  std::array<Vocabulary::Query, 3 * kGroup> queries_{};
  std::string joined_;
};

// An added token must not have two ids, nor the id of another token.
Status check_ids(const VocabularyBuilder& read, const std::vector<AddedToken>& added) {
  const Vocabulary& vocabulary = read.view();
  // The reference ignores the file's ids of added tokens that its model does not have, and numbers
  // them from the number of tokens on. The files that it saves agree with that.
  std::size_t reference_id = read.count();
  bool differs = false;
  for (const AddedToken& token : added) {
    const std::string name =
        "added_tokens: '" + token.content.substr(0, 100) + "' has id " + std::to_string(token.id);
    const auto id = vocabulary.find(token.content);
    if (id && *id != token.id) {
      return invalid_argument(name + ", but model.vocab gives it id " + std::to_string(*id));
    }
    if (id) continue;
    if (vocabulary.contains(token.id)) {
      return invalid_argument(name + ", which is another token of model.vocab");
    }
    if (!differs && static_cast<std::size_t>(token.id) != reference_id) {
      differs = true;
      log_warning("tokenizer.json: " + name +
                  ", and there are holes below it: transformers would " + "number it " +
                  std::to_string(reference_id) + "; Sluice keeps the file's ids");
    }
    ++reference_id;
  }
  return {};
}

}  // namespace

Result<std::vector<AddedToken>> read_added_tokens(const Element& node) {
  simdjson::dom::array array;
  if (node.get(array) != simdjson::SUCCESS) return json::wrong_type("added_tokens", "an array");
  std::vector<AddedToken> tokens;
  for (const Element element : array) {
    const std::string path = json::index_path("added_tokens", tokens.size());
    AddedToken token;
    ASSIGN_OR_RETURN(const std::uint64_t id, json::count_field(element, path, "id"));
    if (id >= Vocabulary::kMaxTokens) {
      return invalid_argument(path + ".id " + std::to_string(id) + " is not below 16777216");
    }
    token.id = static_cast<TokenId>(id);
    ASSIGN_OR_RETURN(token.content, json::string_field(element, path, "content"));
    if (token.content.empty()) return invalid_argument(path + ".content must not be empty");
    ASSIGN_OR_RETURN(token.special, json::bool_field(element, path, "special", false));
    ASSIGN_OR_RETURN(token.normalized,
                     json::bool_field(element, path, "normalized", !token.special));
    ASSIGN_OR_RETURN(token.lstrip, json::bool_field(element, path, "lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, json::bool_field(element, path, "rstrip", false));
    ASSIGN_OR_RETURN(token.single_word, json::bool_field(element, path, "single_word", false));
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].id == tokens[i - 1].id) {
      return invalid_argument("added_tokens: '" + tokens[i - 1].content.substr(0, 100) + "' and '" +
                              tokens[i].content.substr(0, 100) + "' both have id " +
                              std::to_string(tokens[i].id));
    }
  }
  return tokens;
}

namespace {

Status read_type(const Element& node) {
  Element field;
  if (!json::find(node, "type", field)) return {};
  ASSIGN_OR_RETURN(const std::string_view type, json::string_field(node, "model", "type"));
  if (type == "BPE") return {};
  return unsupported("model.type '" + std::string(type) + "' is not supported; BPE is");
}

Result<simdjson::dom::array> find_merges(const Element& node) {
  Element field;
  simdjson::dom::array merges;
  if (!json::find(node, "merges", field) || field.get(merges) != simdjson::SUCCESS) {
    return json::wrong_type("model.merges", "an array");
  }
  if (merges.size() > kMaxMerges) {
    return unsupported("model.merges: more than 16777214 merges are not supported");
  }
  return merges;
}

Status read_merges(const simdjson::dom::array& merges, MergeReader& reader) {
  std::size_t index = 0;
  for (const Element element : merges) {
    std::string_view text;
    const bool comment = element.get(text) == simdjson::SUCCESS && text.starts_with("#version");
    if (!comment) {
      ASSIGN_OR_RETURN(const MergePair pair, read_merge(element, index));
      RETURN_IF_ERROR(reader.add(pair, index));
    }
    ++index;
  }
  return reader.flush();
}

}  // namespace

Result<ModelInImage> read_model(const Element& node, const std::vector<AddedToken>& added) {
  RETURN_IF_ERROR(read_type(node));
  ASSIGN_OR_RETURN(BpeOptions options, read_options(node));
  ASSIGN_OR_RETURN(const auto tokens, find_vocabulary(node));
  ASSIGN_OR_RETURN(const VocabularySize size, measure_vocabulary(tokens));
  ASSIGN_OR_RETURN(const auto merges, find_merges(node));

  const std::size_t token_slots = VocabularyBuilder::slots_for(size.tokens);
  const std::size_t merge_slots = MergeTableBuilder::slots_for(merges.size());
  const auto text_bytes = static_cast<std::size_t>(size.text_bytes);
  constexpr auto kPadded = ImageBuilder::padded;
  ImageBuilder image(kPadded(text_bytes) + kPadded(size.ids * sizeof(TokenSpan)) +
                     kPadded(token_slots * sizeof(TokenSlot)) +
                     kPadded(merge_slots * sizeof(MergeSlot)) + image_room(added));
  const auto texts = image.add<char>(ImageSection::kTexts, text_bytes);
  const auto spans = image.add<TokenSpan>(ImageSection::kSpans, size.ids);
  const auto slots = image.add<TokenSlot>(ImageSection::kSlots, token_slots);
  VocabularyBuilder vocabulary(texts, spans, slots);
  MergeTableBuilder table(image.add<MergeSlot>(ImageSection::kMerges, merge_slots), size.ids);

  RETURN_IF_ERROR(read_vocabulary(tokens, vocabulary));
  RETURN_IF_ERROR(check_ids(vocabulary, added));
  MergeReader reader(vocabulary.view(), table);
  RETURN_IF_ERROR(read_merges(merges, reader));
  options.merges_enter_metaspace = reader.enters_metaspace();
  ASSIGN_OR_RETURN(BpeModel model, BpeModel::create(vocabulary.view(), table.view(), options));
  return ModelInImage{std::move(image), model};
}

}  // namespace sluice
