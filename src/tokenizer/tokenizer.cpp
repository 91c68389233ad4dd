#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/legacy_files.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/tokenizer_definition.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_parts.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{512} << 20;

// A text without pieces may be cut before each U+2581 that follows another character.
constexpr std::string_view kMetaspace = "\u2581";

Error no_tokenizer(const std::filesystem::path& directory) {
  std::string message =
      directory.string() + ": there is no tokenizer.json, nor vocab.json and merges.txt";
  std::error_code ignored;
  if (std::filesystem::exists(directory / "tokenizer.model", ignored)) {
    message +=
        "; tokenizer.model alone is not read, transformers makes a tokenizer.json of it: "
        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)";
  }
  return not_found(std::move(message));
}

// Buffers larger than this are freed after a text: one large text must not keep its memory.
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;

template <class Buffer>
void free_if_large(Buffer& buffer) {
  if (buffer.capacity() * sizeof(typename Buffer::value_type) > kKeptBytes) Buffer().swap(buffer);
}

Error too_many_tokens(std::size_t limit) {
  return resource_exhausted("text: has more than " + std::to_string(limit) + " tokens");
}

}  // namespace

struct EncodeScratch::State {
  std::size_t max_tokens = 0;
  std::vector<AddedTokenMatcher::Stretch> raw_stretches;
  std::vector<AddedTokenMatcher::Stretch> normalized_stretches;
  std::string normalized;
  NormalizerScratch normalizer;
  PreTokenizerScratch pre_tokenizer;
  BpeScratch bpe;

  void set_limits(const EncodeOptions& options) {
    max_tokens = options.max_tokens;
    const StopMeter meter(options.stop);
    normalizer.meter = meter;
    normalizer.regex.meter = meter;
    pre_tokenizer.meter = meter;
    pre_tokenizer.regex.meter = meter;
    bpe.meter = meter;
  }

  // The meters borrow the caller's check.
  void finish() {
    set_limits({});
    free_if_large(raw_stretches);
    free_if_large(normalized_stretches);
    free_if_large(normalized);
    free_if_large(normalizer.matches);
    free_if_large(normalizer.spare);
    free_if_large(normalizer.normal_form.code_points);
    free_if_large(normalizer.normal_form.marks);
    free_if_large(normalizer.normal_form.spare);
    free_if_large(pre_tokenizer.text);
    free_if_large(pre_tokenizer.pieces);
    free_if_large(pre_tokenizer.spare);
    free_if_large(pre_tokenizer.next);
    free_if_large(pre_tokenizer.matches);
    free_if_large(pre_tokenizer.parts);
    free_if_large(bpe.ids);
    free_if_large(bpe.symbols);
    free_if_large(bpe.heap);
    free_if_large(bpe.letters);
  }
};

EncodeScratch::EncodeScratch() : state_(std::make_unique<State>()) {}
EncodeScratch::~EncodeScratch() = default;
EncodeScratch::EncodeScratch(EncodeScratch&&) noexcept = default;
EncodeScratch& EncodeScratch::operator=(EncodeScratch&&) noexcept = default;

struct Tokenizer::Impl {
  std::span<const std::byte> image;
  std::shared_ptr<const void> owner;  // of the image; from_image() says why it is shared
  TokenizerParts parts;

  Status encode_piece(std::string_view piece, EncodeScratch::State& scratch,
                      std::vector<TokenId>& out) const {
    RETURN_IF_ERROR(parts.model.encode(piece, scratch.bpe, out));
    if (out.size() > scratch.max_tokens) return too_many_tokens(scratch.max_tokens);
    return {};
  }

  // Encodes text between the added tokens that are searched in the original text. The first
  // `first_bytes` of it are the first character of the input (PreTokenizerScratch).
  Status encode_stretch(std::string_view text, std::size_t first_bytes, SpecialTokenText special,
                        EncodeScratch::State& scratch, std::vector<TokenId>& out) const {
    std::string_view normalized = text;
    if (!parts.steps.normalizer.empty()) {
      scratch.normalized.assign(text);
      scratch.normalizer.first_bytes = first_bytes;
      RETURN_IF_ERROR(parts.steps.normalizer.run(scratch.normalized, scratch.normalizer));
      normalized = scratch.normalized;
      first_bytes = scratch.normalizer.first_bytes;
    }
    if (parts.normalized_matcher.empty()) {
      return encode_plain(normalized, first_bytes, scratch, out);
    }
    scratch.normalized_stretches.clear();
    parts.normalized_matcher.split(normalized, special, scratch.normalized_stretches);
    for (const auto& stretch : scratch.normalized_stretches) {
      if (stretch.id >= 0) {
        out.push_back(stretch.id);
        continue;
      }
      const std::size_t size = stretch.end - stretch.begin;
      const std::size_t first = std::min(size, first_bytes - std::min(first_bytes, stretch.begin));
      RETURN_IF_ERROR(encode_plain(normalized.substr(stretch.begin, size), first, scratch, out));
    }
    return {};
  }

  // Encodes text without added tokens.
  Status encode_plain(std::string_view text, std::size_t first_bytes, EncodeScratch::State& scratch,
                      std::vector<TokenId>& out) const {
    if (!parts.steps.has_pre_tokenizer && parts.model.can_cut_before_metaspace()) {
      return encode_words(text, scratch, out);
    }
    scratch.pre_tokenizer.first_bytes = first_bytes;
    ASSIGN_OR_RETURN(const std::string_view cut,
                     parts.steps.pre_tokenizer.run(text, scratch.pre_tokenizer));
    for (const TextRange& piece : scratch.pre_tokenizer.pieces) {
      RETURN_IF_ERROR(encode_piece(cut.substr(piece.begin, piece.end - piece.begin), scratch, out));
    }
    return {};
  }

  // The whole text is one piece; cutting it where nothing merges makes the pieces cacheable.
  Status encode_words(std::string_view text, EncodeScratch::State& scratch,
                      std::vector<TokenId>& out) const {
    std::size_t begin = 0;
    bool after_mark = true;
    for (std::size_t at = 0; at < text.size();) {
      if (text.substr(at).starts_with(kMetaspace)) {
        if (!after_mark) {
          RETURN_IF_ERROR(encode_piece(text.substr(begin, at - begin), scratch, out));
          begin = at;
        }
        after_mark = true;
        at += kMetaspace.size();
      } else {
        after_mark = false;
        ++at;
      }
    }
    return encode_piece(text.substr(begin), scratch, out);
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                       std::string_view tokenizer_config_json) {
  return from_files("tokenizer.json", tokenizer_json, tokenizer_config_json);
}

Result<Tokenizer> Tokenizer::from_files(const std::string& name, std::string_view json,
                                        std::string_view config) {
  auto definition = read_tokenizer_json(json);
  if (!definition) return with_context(name, definition.error());
  if (!config.empty()) {
    if (auto status = apply_tokenizer_config(config, *definition); !status) {
      return with_context("tokenizer_config.json", status.error());
    }
  }
  // After a final ByteLevel step the model can read bytes instead of their letters.
  if (definition->model.has_byte_alphabet() &&
      definition->steps.pre_tokenizer.take_final_byte_letters()) {
    definition->model.use_byte_alphabet();
  }
  definition->steps.max_bytes_per_token = max_bytes_per_token(*definition);
  auto image = make_tokenizer_image(*std::move(definition));
  if (!image) return with_context(name, image.error());
  // Shared for from_image(), although this image has one owner.
  auto owned = std::make_shared<const OwnedImage>(*std::move(image));
  const std::span<const std::byte> bytes = owned->span();
  return from_image(bytes, std::move(owned));
}

Result<Tokenizer> Tokenizer::from_image(std::span<const std::byte> image,
                                        // Shared: see the declaration.
                                        std::shared_ptr<const void> owner) {
  ASSIGN_OR_RETURN(TokenizerParts parts, open_tokenizer_image(image));
  return Tokenizer(std::make_unique<const Impl>(Impl{image, std::move(owner), std::move(parts)}));
}

std::span<const std::byte> Tokenizer::image() const { return impl_->image; }

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path.string(), kMaxFileBytes));
    return from_files(path.string(), text, {});
  }
  const auto has = [&](const char* name) { return std::filesystem::exists(path / name, ignored); };
  const auto read = [&](const char* name) {
    return read_file((path / name).string(), kMaxFileBytes);
  };
  const auto read_optional = [&](const char* name) -> Result<std::string> {
    if (!has(name)) return std::string();
    return read(name);
  };
  ASSIGN_OR_RETURN(std::string config, read_optional("tokenizer_config.json"));
  std::string text;
  if (has("tokenizer.json")) {
    ASSIGN_OR_RETURN(text, read("tokenizer.json"));
  } else if (has("vocab.json") && has("merges.txt")) {
    ASSIGN_OR_RETURN(const std::string vocab, read("vocab.json"));
    ASSIGN_OR_RETURN(const std::string merges, read("merges.txt"));
    ASSIGN_OR_RETURN(const std::string special_tokens, read_optional("special_tokens_map.json"));
    ASSIGN_OR_RETURN(const std::string added_tokens, read_optional("added_tokens.json"));
    auto converted = convert_legacy_files({vocab, merges, config, special_tokens, added_tokens});
    if (!converted) return with_context(path.string(), converted.error());
    text = std::move(converted->tokenizer_json);
    config = std::move(converted->tokenizer_config_json);
  } else {
    return no_tokenizer(path);
  }
  auto loaded = from_json(text, config);
  if (!loaded) return with_context(path.string(), loaded.error());
  return loaded;
}

Status Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                         EncodeScratch& scratch, std::vector<TokenId>& out) const {
  out.clear();
  if (const auto invalid = utf8::find_invalid(text)) {
    return invalid_argument("text: not valid UTF-8 at byte offset " + std::to_string(*invalid));
  }
  if (min_tokens(text.size()) > options.max_tokens) return too_many_tokens(options.max_tokens);
  EncodeScratch::State& state = *scratch.state_;
  state.set_limits(options);
  Status status = encode_valid(text, options, state, out);
  state.finish();
  return status;
}

Status Tokenizer::encode_valid(std::string_view text, const EncodeOptions& options,
                               EncodeScratch::State& state, std::vector<TokenId>& out) const {
  const TokenizerParts& parts = impl_->parts;
  state.bpe.cache.prepare(text.size());
  const bool specials = options.add_special_tokens == AddSpecialTokens::kYes;
  const SpecialTokenText special = options.parse_special_tokens == ParseSpecialTokens::kYes
                                       ? SpecialTokenText::kIsToken
                                       : SpecialTokenText::kIsText;
  if (specials) out = parts.steps.specials.prefix;
  state.raw_stretches.clear();
  parts.raw_matcher.split(text, special, state.raw_stretches);
  for (const auto& stretch : state.raw_stretches) {
    if (stretch.id >= 0) {
      out.push_back(stretch.id);
      continue;
    }
    const std::size_t first_bytes = stretch.begin == 0 ? utf8::decode(text, 0).bytes : 0;
    RETURN_IF_ERROR(impl_->encode_stretch(text.substr(stretch.begin, stretch.end - stretch.begin),
                                          first_bytes, special, state, out));
  }
  if (specials)
    out.insert(out.end(), parts.steps.specials.suffix.begin(), parts.steps.specials.suffix.end());
  if (out.size() > options.max_tokens) return too_many_tokens(options.max_tokens);
  return {};
}

std::size_t Tokenizer::min_tokens(std::size_t text_bytes) const {
  const std::size_t most = impl_->parts.steps.max_bytes_per_token;
  return most == 0 ? 0 : (text_bytes + most - 1) / most;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  EncodeScratch scratch;
  std::vector<TokenId> out;
  RETURN_IF_ERROR(encode(text, options, scratch, out));
  return out;
}

std::optional<std::string_view> Tokenizer::decoder_text(TokenId id, SkipSpecialTokens skip) const {
  const TokenizerParts& parts = impl_->parts;
  if (const AddedTokenRecord* token = parts.added_tokens.find(id)) {
    const bool special = token->has(AddedTokenRecord::kSpecial);
    if (special && skip == SkipSpecialTokens::kYes) return std::nullopt;
    return parts.added_tokens.searched(*token);
  }
  if (!parts.model.vocabulary().contains(id)) return std::nullopt;
  return parts.model.vocabulary().text(id);
}

const TokenDecoder& Tokenizer::decoder() const { return impl_->parts.steps.decoder; }

std::string Tokenizer::decode(std::span<const TokenId> ids, SkipSpecialTokens skip) const {
  std::string out;
  TokenDecoder::State state;
  for (const TokenId id : ids) {
    if (const auto text = decoder_text(id, skip)) decoder().push(*text, state, out);
  }
  decoder().finish(state, out);
  return out;
}

std::string Tokenizer::token_bytes(TokenId id) const {
  const auto text = decoder_text(id, SkipSpecialTokens::kNo);
  return text ? decoder().bytes_of(*text) : std::string();
}

bool Tokenizer::is_special(TokenId id) const {
  const AddedTokenRecord* token = impl_->parts.added_tokens.find(id);
  return token != nullptr && token->has(AddedTokenRecord::kSpecial);
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(impl_->parts.vocab_size);
}

std::string_view Tokenizer::token_text(TokenId id) const {
  const AddedTokens& added = impl_->parts.added_tokens;
  if (const AddedTokenRecord* token = added.find(id)) return added.content(*token);
  return impl_->parts.model.vocabulary().text(id);
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token_text) const {
  const AddedTokens& added = impl_->parts.added_tokens;
  for (const AddedTokenRecord& token : added.records()) {
    if (added.content(token) == token_text) return token.id;
  }
  return impl_->parts.model.vocabulary().find(token_text);
}

std::optional<TokenId> Tokenizer::bos_id() const { return impl_->parts.steps.bos; }
std::optional<TokenId> Tokenizer::eos_id() const { return impl_->parts.steps.eos; }

}  // namespace sluice
