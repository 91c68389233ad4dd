#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/utf8.h"

namespace sluice {
namespace {

std::uint64_t mix(std::uint64_t word, std::uint64_t factor) {
  const std::uint64_t product = word * factor;
  return product ^ product >> 32;
}

template <class Word>
std::uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// The up to eight bytes at `from` in one word; overlapping loads instead of a loop.
std::uint64_t load_short(const char* from, std::size_t bytes) {
  if (bytes >= 4) {
    return load<std::uint32_t>(from) << 32 | load<std::uint32_t>(from + bytes - 4);
  }
  if (bytes == 0) return 0;
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(from[i]));
  };
  return byte(0) << 16 | byte(bytes / 2) << 8 | byte(bytes - 1);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kFirst = 0x9E3779B97F4A7C15;
  constexpr std::uint64_t kSecond = 0xD1B54A32D192ED03;
  std::uint64_t state = kFirst ^ bytes.size();
  while (bytes.size() > 8) {
    state = mix(state ^ load<std::uint64_t>(bytes.data()), kSecond);
    bytes.remove_prefix(8);
  }
  state = mix(state ^ load_short(bytes.data(), bytes.size()), kSecond);
  return mix(state, kFirst);
}

Result<Vocabulary> Vocabulary::open(std::string_view texts, std::span<const TokenSpan> spans,
                                    std::span<const TokenSlot> slots) {
  if (spans.size() > kMaxTokens) return invalid_argument("more than 16777216 token ids");
  if (!std::has_single_bit(slots.size()) ||
      std::ranges::none_of(slots, [](const TokenSlot& slot) { return slot.id_plus_one == 0; })) {
    return invalid_argument("the table of tokens has no empty slot");
  }
  if (utf8::find_invalid(texts)) return invalid_argument("a token's text is not valid UTF-8");
  const auto starts_character = [&](std::uint64_t at) {
    return at == texts.size() || (at < texts.size() && (texts[at] & 0xC0) != 0x80);
  };
  for (const TokenSpan& span : spans) {
    if (span.size_plus_one == 0) continue;
    const std::uint64_t end = std::uint64_t{span.begin} + span.size_plus_one - 1;
    if (end > texts.size() || !starts_character(span.begin) || !starts_character(end)) {
      return invalid_argument("a token is no stretch of the texts");
    }
  }
  return Vocabulary(texts.data(), spans, slots);
}

std::optional<TokenId> Vocabulary::find(std::string_view text, std::uint64_t hash) const {
  const auto check = static_cast<std::uint32_t>(hash >> 32);
  for (std::uint64_t at = hash & mask_; slots_[at].id_plus_one != 0; at = (at + 1) & mask_) {
    if (slots_[at].hash != check) continue;
    const std::uint32_t id = slots_[at].id_plus_one - 1;
    if (id >= spans_.size()) continue;
    const TokenSpan span = spans_[id];
    if (span.size_plus_one != 0 &&
        std::string_view(texts_ + span.begin, span.size_plus_one - 1) == text) {
      return static_cast<TokenId>(id);
    }
  }
  return std::nullopt;
}

void Vocabulary::find_all(std::span<Query> queries) const {
  for (Query& query : queries) {
    query.hash = hash_bytes(query.text);
    __builtin_prefetch(&slots_[query.hash & mask_]);
  }
  // The first slot is mostly the token's own. An empty one leads to the last id.
  const auto first_span = [&](const Query& query) {
    const std::size_t id = slots_[query.hash & mask_].id_plus_one - std::size_t{1};
    return &spans_[std::min(id, spans_.size() - 1)];
  };
  if (!spans_.empty()) {
    for (const Query& query : queries) __builtin_prefetch(first_span(query));
    for (const Query& query : queries) __builtin_prefetch(texts_ + first_span(query)->begin);
  }
  for (Query& query : queries) query.id = find(query.text, query.hash).value_or(-1);
}

std::size_t VocabularyBuilder::slots_for(std::size_t tokens) {
  CHECK(tokens <= Vocabulary::kMaxTokens);
  return std::bit_ceil(tokens * 2 + 2);
}

VocabularyBuilder::VocabularyBuilder(std::span<char> texts, std::span<TokenSpan> spans,
                                     std::span<TokenSlot> slots)
    : texts_(texts), spans_(spans), slots_(slots), view_(texts.data(), spans, slots) {
  CHECK(std::has_single_bit(slots.size()) && spans.size() <= Vocabulary::kMaxTokens);
}

Status VocabularyBuilder::add(std::string_view text, std::uint64_t id) {
  const auto name = [&] { return "token '" + std::string(text.substr(0, 100)) + "'"; };
  CHECK(id < spans_.size() && text.size() <= texts_.size() - used_);
  CHECK(2 * (count_ + 1) <= slots_.size());
  if (view_.contains(static_cast<TokenId>(id))) {
    return invalid_argument(name() + " has id " + std::to_string(id) + ", which token '" +
                            std::string(view_.text(static_cast<TokenId>(id)).substr(0, 100)) +
                            "' has already; ids must be unique");
  }
  const std::uint64_t hash = hash_bytes(text);
  const std::uint64_t mask = slots_.size() - 1;
  std::uint64_t slot = hash & mask;
  for (; slots_[slot].id_plus_one != 0; slot = (slot + 1) & mask) {
    const std::uint32_t other = slots_[slot].id_plus_one - 1;
    if (slots_[slot].hash == static_cast<std::uint32_t>(hash >> 32) &&
        view_.text(static_cast<TokenId>(other)) == text) {
      return invalid_argument(name() + " occurs twice, as id " + std::to_string(other) +
                              " and as id " + std::to_string(id));
    }
  }
  if (!text.empty()) std::memcpy(texts_.data() + used_, text.data(), text.size());
  spans_[id] = {static_cast<std::uint32_t>(used_), static_cast<std::uint32_t>(text.size() + 1)};
  slots_[slot] = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(id + 1)};
  used_ += text.size();
  ++count_;
  return {};
}

}  // namespace sluice
