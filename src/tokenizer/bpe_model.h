// BpeModel: byte-pair encoding of one piece of text. Characters (or bytes) become tokens, and
// neighbours are merged, lowest rank first and leftmost among equals, until no pair merges.
// Cost: n log n in the length of a piece, for any text; a cache holds repeated short pieces. A
// model reads tables in an image, which must outlive it. Immutable after it is built; any thread,
// each with its own scratch (a scratch serves one model only: its cache holds that model's tokens).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "base/token_id.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace sluice {

struct BpeOptions {
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  // Some merge joins text that does not end in U+2581 with text that starts with it.
  bool merges_enter_metaspace = false;
};

// The alphabet of a piece.
enum class PieceAlphabet : std::uint32_t {
  kText,   // UTF-8 characters, each a token
  kBytes,  // raw bytes, each written as its letter in the vocabulary (byte_letters.h)
};

// Tokens of short pieces seen before. Direct-mapped: a newer piece takes an older one's place.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 23;
  static constexpr std::size_t kMaxTokens = 8;
  struct alignas(64) Entry {
    std::uint8_t bytes = 0;  // 0: empty
    char text[kMaxBytes] = {};
    std::uint32_t tokens = 0;
    TokenId ids[kMaxTokens] = {};
  };

  // Makes room for the pieces of a text of this many bytes; short texts get none. Entries of
  // earlier texts are kept if the room suffices.
  void prepare(std::size_t text_bytes);
  // The entry of a piece, or null when the piece is too long to be kept. REQUIRES: prepared.
  Entry* place(std::string_view piece);

 private:
  std::vector<Entry> entries_;
};

struct BpeScratch {
  struct Symbol {
    TokenId id;              // -1: merged into the previous token
    std::uint32_t next;      // index; kEnd: none
    std::uint32_t previous;  // index; kEnd: none
  };
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;
    TokenId merged;
  };
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;

  StopMeter meter;
  WordCache cache;
  std::vector<TokenId> ids;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string letters;
};

// The part of a model that an image holds besides the two hash tables. Ids: -1 means no token.
struct BpeRecord {
  static constexpr std::size_t kSmallCharacters = 0x250;

  std::array<TokenId, kSmallCharacters> small_characters{};  // by code point
  std::array<TokenId, 256> bytes{};                          // of the byte alphabet or the fallback
  TokenId unk = -1;
  // Flags: 0 or 1.
  std::uint8_t fuse_unk = 0;
  std::uint8_t byte_fallback = 0;
  std::uint8_t ignore_merges = 0;
  std::uint8_t can_cut_before_metaspace = 0;
  PieceAlphabet alphabet = PieceAlphabet::kText;
};

class BpeModel {
 public:
  // Errors: unk_token is not in the vocabulary.
  static Result<BpeModel> create(const Vocabulary& vocabulary, const MergeTable& merges,
                                 const BpeOptions& options);

  // The model that another one's record describes. Errors: an id that is not below the size of the
  // vocabulary, a byte alphabet with holes.
  static Result<BpeModel> open(const Vocabulary& vocabulary, const MergeTable& merges,
                               const BpeRecord& record);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeRecord& record() const { return record_; }

  // Whether pieces can be raw bytes instead of their letters (after a ByteLevel step): every byte's
  // letter has a token, so no character is unknown and none needs the byte fallback.
  bool has_byte_alphabet() const;
  void use_byte_alphabet();  // REQUIRES: has_byte_alphabet()
  PieceAlphabet alphabet() const { return record_.alphabet; }

  // Whether every character becomes at least one token: none is dropped, and unknown ones are not
  // fused.
  bool covers_all_text() const;

  // Whether no merge and no unknown token crosses the place before a U+2581 that follows another
  // character. Then a text without pieces may be cut there, with the same tokens.
  bool can_cut_before_metaspace() const { return record_.can_cut_before_metaspace != 0; }

  // Appends the tokens of one piece. Errors: a piece of 2^32 - 1 bytes or more, the stop check's.
  // REQUIRES: scratch.cache is prepared for this model.
  Status encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  BpeModel(const Vocabulary& vocabulary, const MergeTable& merges)
      : vocabulary_(vocabulary), merges_(merges) {}

  std::optional<TokenId> whole_piece(std::string_view piece, BpeScratch& scratch) const;
  void load_characters(std::string_view piece, std::vector<TokenId>& ids) const;
  TokenId token_of_character(std::uint32_t code_point, std::string_view text) const;
  bool append_byte_tokens(std::string_view character, std::vector<TokenId>& ids) const;
  void merge_few(std::vector<TokenId>& ids) const;
  Status merge_many(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeRecord record_;
};

}  // namespace sluice
