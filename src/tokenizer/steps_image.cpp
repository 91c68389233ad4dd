#include "tokenizer/steps_image.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/byte_stream.h"
#include "base/utf8.h"

namespace sluice {
namespace {

// More than any tokenizer.json may have; a damaged count must not take memory.
constexpr std::uint32_t kMaxItems = 1 << 16;

enum class Normalizing : std::uint8_t {
  kPrepend,
  kReplace,
  kReplaceRegex,
  kForm,
  kStrip,
  kLowercase,
  kStripAccents,
  kByteLevel,
};
enum class Cutting : std::uint8_t {
  kSplitKnown,
  kSplitRegex,
  kSplitLiteral,
  kSplitClass,
  kPrefixSpace,
  kByteLetters,
  kWords,
  kFixedLength,
  kMetaspaces,
};
enum class Decoding : std::uint8_t { kReplace, kMetaspaces, kStripPiece, kStripText };

template <class Enum>
void write_enum(Enum value, ByteWriter& out) {
  out.u32(static_cast<std::uint32_t>(value));
}

// Writes each step: its kind, then its fields.
struct StepWriter {
  ByteWriter& out;

  void operator()(const PrependStep& step) const {
    write_enum(Normalizing::kPrepend, out);
    out.text(step.text);
  }
  void operator()(const ReplaceStep& step) const {
    if (const auto* literal = std::get_if<std::string>(&step.pattern)) {
      write_enum(Normalizing::kReplace, out);
      out.text(*literal);
    } else {
      write_enum(Normalizing::kReplaceRegex, out);
      out.text(std::get<Regex>(step.pattern).pattern());
    }
    out.text(step.content);
  }
  void operator()(const NormalForm& form) const {
    write_enum(Normalizing::kForm, out);
    write_enum(form, out);
  }
  void operator()(const StripStep& step) const {
    write_enum(Normalizing::kStrip, out);
    out.u32(step.left ? 1 : 0);
    out.u32(step.right ? 1 : 0);
  }
  void operator()(const LowercaseStep&) const { write_enum(Normalizing::kLowercase, out); }
  void operator()(const StripAccentsStep&) const { write_enum(Normalizing::kStripAccents, out); }
  void operator()(const ByteLevelStep&) const { write_enum(Normalizing::kByteLevel, out); }

  void operator()(const SplitStep& step) const {
    std::visit(*this, step.pattern);
    write_enum(step.behavior, out);
    write_enum(step.sense, out);
  }
  void operator()(const KnownPattern& pattern) const {
    write_enum(Cutting::kSplitKnown, out);
    write_enum(pattern, out);
  }
  void operator()(const Regex& regex) const {
    write_enum(Cutting::kSplitRegex, out);
    out.text(regex.pattern());
  }
  void operator()(const std::string& literal) const {
    write_enum(Cutting::kSplitLiteral, out);
    out.text(literal);
  }
  void operator()(const unicode::ClassMask& mask) const {
    write_enum(Cutting::kSplitClass, out);
    write_enum(mask, out);
  }
  void operator()(const PrefixSpaceStep&) const { write_enum(Cutting::kPrefixSpace, out); }
  void operator()(const ByteLettersStep&) const { write_enum(Cutting::kByteLetters, out); }
  void operator()(const WordsStep&) const { write_enum(Cutting::kWords, out); }
  void operator()(const FixedLengthStep& step) const {
    write_enum(Cutting::kFixedLength, out);
    out.u64(step.characters);
  }
  void operator()(const MetaspaceStep& step) const {
    write_enum(Cutting::kMetaspaces, out);
    out.text(step.replacement);
    write_enum(step.scheme, out);
  }

  void operator()(const ReplacePieceStep& step) const {
    write_enum(Decoding::kReplace, out);
    out.text(step.from);
    out.text(step.to);
  }
  void operator()(const MetaspacePieceStep& step) const {
    write_enum(Decoding::kMetaspaces, out);
    out.text(step.replacement);
    out.u32(step.drop_in_first ? 1 : 0);
  }
  void operator()(const StripPieceStep& step) const {
    write_enum(Decoding::kStripPiece, out);
    out.text(step.content);
    out.u64(step.start);
    out.u64(step.stop);
  }
  void operator()(const StripTextStep& step) const {
    write_enum(Decoding::kStripText, out);
    out.text(step.content);
    out.u64(step.start);
  }
};

template <class Step>
void write_steps(const std::vector<Step>& steps, ByteWriter& out) {
  out.u32(static_cast<std::uint32_t>(steps.size()));
  for (const Step& step : steps) std::visit(StepWriter{out}, step);
}

void write_ids(const std::vector<TokenId>& ids, ByteWriter& out) {
  out.u32(static_cast<std::uint32_t>(ids.size()));
  for (const TokenId id : ids) out.u32(static_cast<std::uint32_t>(id));
}

// Reads values that write_steps_section() has written, and notes when a value cannot be one.
class StepReader {
 public:
  explicit StepReader(std::span<const std::byte> bytes) : in_(bytes) {}

  // A number up to `last`.
  std::uint32_t number(std::uint32_t last) {
    const std::uint32_t value = in_.u32();
    if (value <= last) return value;
    refuse();
    return 0;
  }
  bool flag() { return number(1) != 0; }
  template <class Enum>
  Enum one_up_to(Enum last) {
    return static_cast<Enum>(number(static_cast<std::uint32_t>(last)));
  }
  std::size_t size() { return in_.u64(); }
  std::string text() {
    const std::string_view text = in_.text();
    if (!utf8::find_invalid(text)) return std::string(text);
    refuse();
    return {};
  }
  // A text to search for must not be empty: it would match at each place.
  std::string literal() {
    std::string value = text();
    if (value.empty()) refuse();
    return value;
  }
  TokenId id(TokenId first, TokenId last) {
    const auto value = static_cast<TokenId>(in_.u32());
    if (value >= first && value <= last) return value;
    refuse();
    return -1;
  }
  void refuse() { refused_ = true; }

  bool ok() const { return in_.ok() && !refused_; }
  bool at_end() const { return in_.left() == 0; }

 private:
  ByteReader in_;
  bool refused_ = false;
};

Regex read_regex(StepReader& in) { return Regex::deferred(in.literal()); }

NormalizerStep read_normalizer_step(StepReader& in) {
  switch (in.one_up_to(Normalizing::kByteLevel)) {
    case Normalizing::kPrepend: return PrependStep{in.text()};
    case Normalizing::kReplace: {
      std::string literal = in.literal();
      return ReplaceStep{std::move(literal), in.text()};
    }
    case Normalizing::kReplaceRegex: {
      Regex regex = read_regex(in);
      return ReplaceStep{std::move(regex), in.text()};
    }
    case Normalizing::kForm: return in.one_up_to(NormalForm::kNfkd);
    case Normalizing::kStrip: {
      const bool left = in.flag();
      return StripStep{left, in.flag()};
    }
    case Normalizing::kLowercase: return LowercaseStep{};
    case Normalizing::kStripAccents: return StripAccentsStep{};
    case Normalizing::kByteLevel: return ByteLevelStep{};
  }
  return ByteLevelStep{};
}

template <class Pattern>
SplitStep read_split(Pattern pattern, StepReader& in) {
  const auto behavior = in.one_up_to(SplitBehavior::kContiguous);
  return SplitStep{std::move(pattern), behavior, in.one_up_to(MatchSense::kInverted)};
}

PreTokenizerStep read_pre_tokenizer_step(StepReader& in) {
  switch (in.one_up_to(Cutting::kMetaspaces)) {
    case Cutting::kSplitKnown: return read_split(in.one_up_to(KnownPattern::kThreeDigits), in);
    case Cutting::kSplitRegex: return read_split(read_regex(in), in);
    case Cutting::kSplitLiteral: return read_split(in.literal(), in);
    case Cutting::kSplitClass:
      return read_split(static_cast<unicode::ClassMask>(in.number(0xFF)), in);
    case Cutting::kPrefixSpace: return PrefixSpaceStep{};
    case Cutting::kByteLetters: return ByteLettersStep{};
    case Cutting::kWords: return WordsStep{};
    case Cutting::kFixedLength: return FixedLengthStep{in.size()};
    case Cutting::kMetaspaces: {
      std::string replacement = in.literal();
      return MetaspaceStep{std::move(replacement), in.one_up_to(PrependScheme::kNever)};
    }
  }
  return WordsStep{};
}

ReplacePieceStep read_replacement(StepReader& in) {
  std::string from = in.literal();
  return {std::move(from), in.text()};
}

PieceStep read_piece_step(StepReader& in) {
  switch (in.one_up_to(Decoding::kStripPiece)) {
    case Decoding::kReplace: return read_replacement(in);
    case Decoding::kMetaspaces: {
      std::string replacement = in.literal();
      return MetaspacePieceStep{std::move(replacement), in.flag()};
    }
    default: {
      std::string content = in.literal();
      const std::size_t start = in.size();
      return StripPieceStep{std::move(content), start, in.size()};
    }
  }
}

TextStep read_text_step(StepReader& in) {
  const auto kind = in.one_up_to(Decoding::kStripText);
  if (kind == Decoding::kReplace) return read_replacement(in);
  if (kind != Decoding::kStripText) in.refuse();
  std::string content = in.literal();
  return StripTextStep{std::move(content), in.size()};
}

template <class Step>
std::vector<Step> read_steps(StepReader& in, Step (*read)(StepReader&)) {
  std::vector<Step> steps;
  for (auto left = in.number(kMaxItems); left > 0 && in.ok(); --left) {
    steps.push_back(read(in));
  }
  return steps;
}

std::vector<TokenId> read_ids(StepReader& in, TokenId last) {
  std::vector<TokenId> ids;
  for (auto left = in.number(kMaxItems); left > 0 && in.ok(); --left) {
    ids.push_back(in.id(0, last));
  }
  return ids;
}

// -1 for none.
std::optional<TokenId> read_optional_id(StepReader& in, TokenId last) {
  const TokenId id = in.id(-1, last);
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace

std::vector<std::byte> write_steps_section(const TokenizerSteps& steps) {
  ByteWriter out;
  write_steps(steps.normalizer.steps(), out);
  out.u32(steps.has_pre_tokenizer ? 1 : 0);
  write_steps(steps.pre_tokenizer.steps(), out);
  write_steps(steps.decoder.piece_steps(), out);
  write_enum(steps.decoder.token_join(), out);
  write_steps(steps.decoder.text_steps(), out);
  write_ids(steps.specials.prefix, out);
  write_ids(steps.specials.suffix, out);
  out.u64(steps.max_bytes_per_token);
  out.u32(static_cast<std::uint32_t>(steps.bos.value_or(-1)));
  out.u32(static_cast<std::uint32_t>(steps.eos.value_or(-1)));
  return out.take();
}

Result<TokenizerSteps> read_steps_section(std::span<const std::byte> bytes, std::size_t ids) {
  const auto damaged = [] { return invalid_argument("the steps around the model are damaged"); };
  const auto last = static_cast<TokenId>(ids) - 1;
  StepReader in(bytes);
  TokenizerSteps steps;
  steps.normalizer = TextNormalizer(read_steps(in, read_normalizer_step));
  steps.has_pre_tokenizer = in.flag();
  steps.pre_tokenizer = PreTokenizer(read_steps(in, read_pre_tokenizer_step));
  auto piece_steps = read_steps(in, read_piece_step);
  const auto join = in.one_up_to(TokenJoin::kByteFallback);
  steps.decoder = TokenDecoder(std::move(piece_steps), join, read_steps(in, read_text_step));
  steps.specials.prefix = read_ids(in, last);
  steps.specials.suffix = read_ids(in, last);
  steps.max_bytes_per_token = in.size();
  steps.bos = read_optional_id(in, last);
  steps.eos = read_optional_id(in, last);
  if (!in.ok() || !in.at_end()) return damaged();
  return steps;
}

}  // namespace sluice
