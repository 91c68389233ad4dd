#include "tokenizer/vocabulary.h"

#include <bit>
#include <cstring>

#include "base/check.h"

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

Vocabulary::Vocabulary(std::size_t tokens, std::size_t ids)
    : spans_(ids), slots_(std::bit_ceil(tokens * 2 + 2)), mask_(slots_.size() - 1) {
  CHECK(tokens <= kMaxTokens && ids <= kMaxTokens);
}

Status Vocabulary::add(std::string_view text, std::uint64_t id) {
  const auto name = [&] { return "token '" + std::string(text.substr(0, 100)) + "'"; };
  CHECK(id < spans_.size());
  Span& span = spans_[id];
  if (span.size != kAbsent) {
    return invalid_argument(name() + " has id " + std::to_string(id) + ", which token '" +
                            std::string(this->text(static_cast<TokenId>(id)).substr(0, 100)) +
                            "' has already; ids must be unique");
  }
  if (text.size() > kAbsent - 1 - arena_.size()) {
    return invalid_argument("more than 4 GiB of tokens");
  }
  const std::uint64_t hash = hash_bytes(text);
  std::uint64_t slot = hash & mask_;
  for (; slots_[slot].id >= 0; slot = (slot + 1) & mask_) {
    if (slots_[slot].hash == static_cast<std::uint32_t>(hash >> 32) &&
        this->text(slots_[slot].text) == text) {
      return invalid_argument(name() + " occurs twice, as id " + std::to_string(slots_[slot].id) +
                              " and as id " + std::to_string(id));
    }
  }
  span = {static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(text.size())};
  slots_[slot] = {static_cast<std::uint32_t>(hash >> 32), static_cast<TokenId>(id), span};
  arena_ += text;
  ++count_;
  return {};
}

std::optional<TokenId> Vocabulary::find(std::string_view text, std::uint64_t hash) const {
  const auto check = static_cast<std::uint32_t>(hash >> 32);
  for (std::uint64_t slot = hash & mask_; slots_[slot].id >= 0; slot = (slot + 1) & mask_) {
    if (slots_[slot].hash == check && this->text(slots_[slot].text) == text) {
      return slots_[slot].id;
    }
  }
  return std::nullopt;
}

void Vocabulary::find_all(std::span<Query> queries) const {
  for (Query& query : queries) {
    query.hash = hash_bytes(query.text);
    __builtin_prefetch(&slots_[query.hash & mask_]);
  }
  for (const Query& query : queries) {
    const Slot& first = slots_[query.hash & mask_];
    if (first.id >= 0) __builtin_prefetch(arena_.data() + first.text.begin);
  }
  for (Query& query : queries) query.id = find(query.text, query.hash).value_or(-1);
}

std::string_view Vocabulary::text(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= spans_.size()) return {};
  const Span span = spans_[static_cast<std::size_t>(id)];
  return span.size == kAbsent ? std::string_view() : text(span);
}

}  // namespace sluice
