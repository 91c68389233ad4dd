// Writes a tokenizer's definition into an image and opens it again: the two sides of one layout.
#include <algorithm>
#include <utility>

#include "tokenizer/image_layout.h"
#include "tokenizer/steps_image.h"
#include "tokenizer/tokenizer_definition.h"
#include "tokenizer/tokenizer_parts.h"

namespace sluice {
namespace {

Result<BpeModel> open_model(const ImageView& image) {
  using enum ImageSection;
  ASSIGN_OR_RETURN(const auto spans, image.table<TokenSpan>(kSpans));
  ASSIGN_OR_RETURN(const auto slots, image.table<TokenSlot>(kSlots));
  ASSIGN_OR_RETURN(const auto vocabulary, Vocabulary::open(image.text(kTexts), spans, slots));
  ASSIGN_OR_RETURN(const auto merge_slots, image.table<MergeSlot>(kMerges));
  ASSIGN_OR_RETURN(const auto merges, MergeTable::open(merge_slots, spans.size()));
  ASSIGN_OR_RETURN(const auto records, image.table<BpeRecord>(kModel));
  if (records.size() != 1) return ImageView::damaged("it has no model");
  return BpeModel::open(vocabulary, merges, records.front());
}

Result<TokenizerParts> open_parts(const ImageView& image) {
  using enum ImageSection;
  ASSIGN_OR_RETURN(BpeModel model, open_model(image));
  ASSIGN_OR_RETURN(const auto records, image.table<AddedTokenRecord>(kAddedTokens));
  ASSIGN_OR_RETURN(const AddedTokens added,
                   AddedTokens::open(records, image.text(kAddedTexts), Vocabulary::kMaxTokens));
  ASSIGN_OR_RETURN(const auto raw,
                   AddedTokenMatcher::open(image.section(kRawTrie), added, SearchedText::kRaw));
  ASSIGN_OR_RETURN(
      const auto normalized,
      AddedTokenMatcher::open(image.section(kNormalizedTrie), added, SearchedText::kNormalized));
  const std::size_t added_ids =
      records.empty() ? 0 : static_cast<std::size_t>(records.back().id) + 1;
  const std::size_t vocab_size = std::max(model.vocabulary().size(), added_ids);
  ASSIGN_OR_RETURN(TokenizerSteps steps, read_steps_section(image.section(kSteps), vocab_size));
  return TokenizerParts{model, added, raw, normalized, std::move(steps), vocab_size};
}

}  // namespace

std::size_t image_room(const std::vector<AddedToken>& added_tokens) {
  // Room for steps, and for a trie without common starts.
  std::size_t room = std::size_t{64} << 10;
  for (const AddedToken& token : added_tokens) {
    room += sizeof(AddedTokenRecord) + token.content.size() * (sizeof(TrieNode) + 2);
  }
  return room;
}

Result<OwnedImage> make_tokenizer_image(TokenizerDefinition definition) {
  ImageBuilder& image = definition.image;
  // Copied first: adding a section may move the tables that the model looks at.
  const BpeRecord record = definition.model.record();
  image.add_copy(ImageSection::kModel, std::span<const BpeRecord>(&record, 1));
  ASSIGN_OR_RETURN(const AddedTokenTables added,
                   make_added_token_tables(definition.added_tokens, definition.searched_texts));
  image.add_copy(ImageSection::kAddedTokens, std::span<const AddedTokenRecord>(added.records));
  image.add_copy(ImageSection::kAddedTexts, added.texts);
  image.add_copy(ImageSection::kRawTrie, std::span<const std::byte>(added.raw_trie));
  image.add_copy(ImageSection::kNormalizedTrie, std::span<const std::byte>(added.normalized_trie));
  image.add_copy(ImageSection::kSteps,
                 std::span<const std::byte>(write_steps_section(definition.steps)));
  return std::move(image).finish();
}

Result<TokenizerParts> open_tokenizer_image(std::span<const std::byte> image) {
  ASSIGN_OR_RETURN(const ImageView view, ImageView::open(image));
  auto parts = open_parts(view);
  if (!parts) return ImageView::damaged(parts.error().message);
  return parts;
}

}  // namespace sluice
