#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/byte_letters.h"

namespace sluice {
namespace {

// Up to here a scan for the lowest rank is faster than a heap.
constexpr std::size_t kFewSymbols = 48;
constexpr std::size_t kMaxCacheEntries = 1 << 14;
constexpr std::size_t kMinCachedText = 256;

// The heap's order: lowest rank on top, leftmost among equals.
bool comes_later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

void WordCache::prepare(std::size_t text_bytes) {
  if (text_bytes < kMinCachedText) return;
  const std::size_t wanted = std::min(kMaxCacheEntries, std::bit_ceil(text_bytes / 4));
  if (entries_.size() < wanted) entries_.assign(wanted, Entry{});
}

WordCache::Entry* WordCache::place(std::string_view piece) {
  if (piece.size() > kMaxBytes || entries_.empty()) return nullptr;
  return &entries_[hash_bytes(piece) & (entries_.size() - 1)];
}

Result<BpeModel> BpeModel::create(const Vocabulary& vocabulary, const MergeTable& merges,
                                  const BpeOptions& options) {
  BpeModel model(vocabulary, merges);
  BpeRecord& record = model.record_;
  if (options.unk_token) {
    const auto id = vocabulary.find(*options.unk_token);
    if (!id) {
      return invalid_argument("model.unk_token '" + *options.unk_token + "' is not in model.vocab");
    }
    record.unk = *id;
  }
  record.fuse_unk = options.fuse_unk ? 1 : 0;
  record.byte_fallback = options.byte_fallback ? 1 : 0;
  record.ignore_merges = options.ignore_merges ? 1 : 0;
  for (std::uint32_t c = 0; c < BpeRecord::kSmallCharacters; ++c) {
    std::string text;
    utf8::append(c, text);
    record.small_characters[c] = vocabulary.find(text).value_or(-1);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    record.bytes[byte] = vocabulary.find(name).value_or(-1);
  }
  const bool can_cut = !options.merges_enter_metaspace && !options.ignore_merges &&
                       vocabulary.find("\u2581").has_value();
  record.can_cut_before_metaspace = can_cut ? 1 : 0;
  return model;
}

Result<BpeModel> BpeModel::open(const Vocabulary& vocabulary, const MergeTable& merges,
                                const BpeRecord& record) {
  const auto is_bad = [&](TokenId id) {
    return id < -1 || id >= static_cast<TokenId>(vocabulary.size());
  };
  if (std::ranges::any_of(record.small_characters, is_bad) ||
      std::ranges::any_of(record.bytes, is_bad) || is_bad(record.unk)) {
    return invalid_argument("the model names an id that the vocabulary does not have");
  }
  const bool is_bytes = record.alphabet == PieceAlphabet::kBytes;
  if (!is_bytes && record.alphabet != PieceAlphabet::kText) {
    return invalid_argument("the model has an unknown alphabet");
  }
  if (is_bytes && std::ranges::any_of(record.bytes, [](TokenId id) { return id < 0; })) {
    return invalid_argument("the model's alphabet of bytes lacks bytes");
  }
  BpeModel model(vocabulary, merges);
  model.record_ = record;
  return model;
}

bool BpeModel::has_byte_alphabet() const {
  return std::all_of(kByteLetters.begin(), kByteLetters.end(),
                     [&](std::uint16_t letter) { return record_.small_characters[letter] >= 0; });
}

void BpeModel::use_byte_alphabet() {
  CHECK(has_byte_alphabet());
  for (std::size_t b = 0; b < 256; ++b) {
    record_.bytes[b] = record_.small_characters[kByteLetters[b]];
  }
  record_.alphabet = PieceAlphabet::kBytes;
}

bool BpeModel::covers_all_text() const {
  if (record_.alphabet == PieceAlphabet::kBytes) return true;
  const bool all_bytes = record_.byte_fallback != 0 &&
                         std::ranges::all_of(record_.bytes, [](TokenId id) { return id >= 0; });
  return all_bytes || (record_.unk >= 0 && record_.fuse_unk == 0);
}

TokenId BpeModel::token_of_character(std::uint32_t code_point, std::string_view text) const {
  if (code_point < BpeRecord::kSmallCharacters) return record_.small_characters[code_point];
  return vocabulary_.find(text).value_or(-1);
}

bool BpeModel::append_byte_tokens(std::string_view character, std::vector<TokenId>& ids) const {
  const auto token = [&](char c) { return record_.bytes[static_cast<unsigned char>(c)]; };
  if (record_.byte_fallback == 0) return false;
  if (std::any_of(character.begin(), character.end(), [&](char c) { return token(c) < 0; })) {
    return false;
  }
  for (const char c : character) ids.push_back(token(c));
  return true;
}

void BpeModel::load_characters(std::string_view piece, std::vector<TokenId>& ids) const {
  if (record_.alphabet == PieceAlphabet::kBytes) {
    for (const char c : piece) ids.push_back(record_.bytes[static_cast<unsigned char>(c)]);
    return;
  }
  // An unknown character waits until a known one follows: with fuse_unk a run of them is one
  // token. Byte tokens do not end the run, so the waiting token follows them, as in the reference.
  // Without an unknown token such characters vanish, also as in the reference.
  bool unk_waits = false;
  for (std::size_t at = 0; at < piece.size();) {
    const utf8::CodePoint c = utf8::decode(piece, at);
    const std::string_view character = piece.substr(at, c.bytes);
    at += c.bytes;
    const TokenId id = token_of_character(c.value, character);
    if (id >= 0) {
      if (unk_waits) ids.push_back(record_.unk);
      unk_waits = false;
      ids.push_back(id);
    } else if (!append_byte_tokens(character, ids) && record_.unk >= 0) {
      if (unk_waits && record_.fuse_unk == 0) ids.push_back(record_.unk);
      unk_waits = true;
    }
  }
  if (unk_waits) ids.push_back(record_.unk);
}

void BpeModel::merge_few(std::vector<TokenId>& ids) const {
  std::array<Merge, kFewSymbols> merges;
  std::size_t count = ids.size();
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    ids[best] = merges[best].merged;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              ids.begin() + static_cast<std::ptrdiff_t>(count),
              ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + static_cast<std::ptrdiff_t>(best) + 1,
              merges.begin() + static_cast<std::ptrdiff_t>(count) - 1,
              merges.begin() + static_cast<std::ptrdiff_t>(best));
    --count;
    if (best + 1 < count) merges[best] = merges_.find(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
  }
  ids.resize(count);
}

Status BpeModel::merge_many(BpeScratch& scratch) const {
  constexpr std::uint32_t kEnd = BpeScratch::kEnd;
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch.ids[i], i + 1 < count ? i + 1 : kEnd, i > 0 ? i - 1 : kEnd});
  }
  const auto candidate = [&](std::uint32_t at) -> std::optional<BpeScratch::Candidate> {
    const Merge merge = merges_.find(symbols[at].id, symbols[symbols[at].next].id);
    if (merge.rank == kNoRank) return std::nullopt;
    return BpeScratch::Candidate{merge.rank, at, merge.merged};
  };
  const auto push = [&](std::uint32_t at) {
    if (const auto c = candidate(at)) {
      heap.push_back(*c);
      std::push_heap(heap.begin(), heap.end(), comes_later);
    }
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    RETURN_IF_ERROR(scratch.meter.spend(1));
    if (const auto c = candidate(i)) heap.push_back(*c);
  }
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    RETURN_IF_ERROR(scratch.meter.spend(4));
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[top.at];
    if (left.id < 0 || left.next == kEnd) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    // A neighbour has merged since: the entry is stale.
    const Merge merge = merges_.find(left.id, right.id);
    if (merge.rank == kNoRank || merge.merged != top.merged) continue;
    left.id = top.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next != kEnd) symbols[left.next].previous = top.at;
    if (left.previous != kEnd) push(left.previous);
    if (left.next != kEnd) push(top.at);
  }
  scratch.ids.clear();
  for (std::uint32_t at = 0; at != kEnd; at = symbols[at].next) {
    scratch.ids.push_back(symbols[at].id);
  }
  return {};
}

std::optional<TokenId> BpeModel::whole_piece(std::string_view piece, BpeScratch& scratch) const {
  if (record_.alphabet == PieceAlphabet::kText) return vocabulary_.find(piece);
  scratch.letters.clear();
  append_byte_letters(piece, scratch.letters);
  return vocabulary_.find(scratch.letters);
}

Status BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                        std::vector<TokenId>& out) const {
  if (piece.empty()) return {};
  if (piece.size() >= BpeScratch::kEnd) {
    return invalid_argument("text: a piece of 4 GiB or more cannot be tokenized");
  }
  RETURN_IF_ERROR(scratch.meter.spend(1 + piece.size() / 8));
  WordCache::Entry* entry = scratch.cache.place(piece);
  if (entry != nullptr && entry->bytes == piece.size() &&
      std::memcmp(entry->text, piece.data(), piece.size()) == 0) {
    out.insert(out.end(), entry->ids, entry->ids + entry->tokens);
    return {};
  }
  auto& ids = scratch.ids;
  ids.clear();
  const std::optional<TokenId> whole =
      record_.ignore_merges != 0 ? whole_piece(piece, scratch) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    load_characters(piece, ids);
    if (ids.size() > kFewSymbols) {
      RETURN_IF_ERROR(merge_many(scratch));
    } else {
      merge_few(ids);
    }
  }
  out.insert(out.end(), ids.begin(), ids.end());
  if (entry != nullptr && ids.size() <= WordCache::kMaxTokens) {
    entry->bytes = static_cast<std::uint8_t>(piece.size());
    std::memcpy(entry->text, piece.data(), piece.size());
    entry->tokens = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), entry->ids);
  }
  return {};
}

}  // namespace sluice
