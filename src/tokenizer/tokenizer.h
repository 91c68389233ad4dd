// Tokenizer: turns text into token ids and back, exactly as the `tokenizers` package does with the
// same tokenizer.json (docs/tokenizers.md lists supported parts and differences).
// A tokenizer reads an image: one block of bytes without pointers (image_layout.h). Loading the
// files makes the image in memory; an image that was stored can be used where it is mapped.
// Immutable after loading: any number of threads may encode and decode at once, each with its own
// EncodeScratch. A Tokenizer must outlive everything made for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "base/token_id.h"

namespace sluice {

enum class AddSpecialTokens { kNo, kYes };    // BOS and EOS by the post-processor
enum class ParseSpecialTokens { kNo, kYes };  // "<s>" in the text is the token, or just text
enum class SkipSpecialTokens { kNo, kYes };

struct EncodeOptions {
  AddSpecialTokens add_special_tokens = AddSpecialTokens::kYes;
  ParseSpecialTokens parse_special_tokens = ParseSpecialTokens::kYes;
  // A text with more tokens is refused, without work if its number of bytes already implies it.
  std::size_t max_tokens = std::numeric_limits<std::size_t>::max();
  // Called during the work; may be null. It must outlive the call.
  const StopCheck* stop = nullptr;
};

class TokenDecoder;

// Working memory of encode(): keeps small buffers and a cache of words from call to call. Serves
// one Tokenizer, and one thread at a time. Cheap to make.
class EncodeScratch {
 public:
  EncodeScratch();
  ~EncodeScratch();
  EncodeScratch(EncodeScratch&&) noexcept;
  EncodeScratch& operator=(EncodeScratch&&) noexcept;

 private:
  friend class Tokenizer;
  struct State;
  std::unique_ptr<State> state_;
};

class Tokenizer {
 public:
  // `path` is a checkpoint directory (tokenizer.json and, if there, tokenizer_config.json; or the
  // old vocab.json and merges.txt) or a file in the form of tokenizer.json, which is read alone.
  // Errors: kNotFound, kInvalidArgument (broken), kUnsupported (by name). Limit: 512 MiB a file.
  static Result<Tokenizer> load(const std::filesystem::path& path);

  // The same from the texts of the files; an empty `tokenizer_config_json` means there is none.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json,
                                     std::string_view tokenizer_config_json = {});

  // The tokenizer with this image, which image() returned in this process or another one. It equals
  // the tokenizer that was loaded from the files. `owner` keeps the bytes alive; it may be null if
  // they outlive the tokenizer. No table is copied, and patterns are compiled when a text first
  // needs them. Damaged bytes never cause a read outside of them or endless work. Errors:
  // kInvalidArgument (damaged, or of a machine with another byte order), kUnsupported (another
  // version). REQUIRES: the bytes begin at a multiple of kImageAlignment and do not change.
  static Result<Tokenizer> from_image(std::span<const std::byte> image,
                                      // Shared: a mapped file may hold other parts as well.
                                      std::shared_ptr<const void> owner);

  // The image, valid as long as the tokenizer. The same files give the same bytes.
  std::span<const std::byte> image() const;

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Replaces `out` by the tokens of `text`. Cost: n log n in the bytes of the text; it ends early
  // at options.max_tokens. After an error the contents of `out` are unspecified. Errors:
  // kInvalidArgument: the text is not valid UTF-8 (names the byte offset), or a match of one of the
  //   tokenizer's regular expressions exceeded its limit;
  // kResourceExhausted: more than options.max_tokens tokens;
  // the error of options.stop.
  Status encode(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
                std::vector<TokenId>& out) const;
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;

  // A lower bound of the number of tokens of a text with this many bytes; 0 when the tokenizer has
  // none (token_bound.h).
  std::size_t min_tokens(std::size_t text_bytes) const;

  // The text of the tokens: always valid UTF-8; ids outside of the vocabulary add nothing.
  std::string decode(std::span<const TokenId> ids, SkipSpecialTokens skip) const;

  // The bytes of one token inside a text; they may be a part of a character.
  std::string token_bytes(TokenId id) const;

  // Whether the token is one that a text never holds, such as the end of a sequence.
  bool is_special(TokenId id) const;

  // The largest id plus one. A model's own vocabulary size may be larger (padding).
  std::int32_t vocab_size() const;

  // A token as the vocabulary writes it; empty for unknown ids.
  std::string_view token_text(TokenId id) const;
  std::optional<TokenId> id_of(std::string_view token_text) const;

  // From tokenizer_config.json; bos_id also from the post-processor.
  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;

 private:
  friend class StreamingDetokenizer;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  // `name` stands for the first text in errors.
  static Result<Tokenizer> from_files(const std::string& name, std::string_view json,
                                      std::string_view config);
  // REQUIRES: valid UTF-8.
  Status encode_valid(std::string_view text, const EncodeOptions& options,
                      EncodeScratch::State& state, std::vector<TokenId>& out) const;
  const TokenDecoder& decoder() const;
  // The text of a token that the decoder gets; nothing when the token is skipped or unknown.
  std::optional<std::string_view> decoder_text(TokenId id, SkipSpecialTokens skip) const;

  std::unique_ptr<const Impl> impl_;
};

}  // namespace sluice
