#include "tokenizer/token_decoder.h"

#include <optional>
#include <utility>

#include "base/partial_match.h"
#include "base/utf8.h"
#include "tokenizer/byte_letters.h"

namespace sluice {
namespace {

void replace_literal(std::string_view from, std::string_view to, std::string& text,
                     std::string& spare) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  spare.clear();
  std::size_t copied = 0;
  for (; at != std::string::npos; at = text.find(from, copied)) {
    spare.append(text, copied, at - copied);
    spare += to;
    copied = at + from.size();
  }
  spare.append(text, copied, std::string::npos);
  text.swap(spare);
}

struct PieceRunner {
  TokenDecoder::State& state;

  void operator()(const ReplacePieceStep& step) const {
    replace_literal(step.from, step.to, state.piece, state.spare);
  }
  void operator()(const MetaspacePieceStep& step) const {
    const bool drop = step.drop_in_first && state.first;
    replace_literal(step.replacement, drop ? "" : " ", state.piece, state.spare);
  }
  void operator()(const StripPieceStep& step) const {
    std::string_view text = state.piece;
    for (std::size_t i = 0; i < step.start && text.starts_with(step.content); ++i) {
      text.remove_prefix(step.content.size());
    }
    for (std::size_t i = 0; i < step.stop && text.ends_with(step.content); ++i) {
      text.remove_suffix(step.content.size());
    }
    state.spare.assign(text);
    state.piece.swap(state.spare);
  }
};

std::optional<char> byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

// Whether one U+FFFD replaces a whole invalid part or one byte of it.
enum class Damage { kPerPart, kPerByte };

void append_damage(std::size_t bytes, Damage damage, std::string& out) {
  const std::size_t count = damage == Damage::kPerByte ? bytes : 1;
  for (std::size_t i = 0; i < count; ++i) out += utf8::kReplacement;
}

// Moves all complete characters, and all bytes that cannot be part of a character, to `out`.
void take_characters(std::string& bytes, Damage damage, std::string& out) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const utf8::Scanned next = utf8::scan(rest);
    if (next.lead == utf8::Lead::kIncomplete) break;
    if (next.lead == utf8::Lead::kValid) {
      out += rest.substr(0, next.bytes);
    } else {
      append_damage(next.bytes, damage, out);
    }
    rest.remove_prefix(next.bytes);
  }
  bytes.erase(0, bytes.size() - rest.size());
}

// Handles the rest at the end of the input: the start of one character.
void take_rest(std::string& bytes, Damage damage, std::string& out) {
  if (!bytes.empty()) append_damage(bytes.size(), damage, out);
  bytes.clear();
}

}  // namespace

void TokenDecoder::join(State& state) const {
  switch (join_) {
    case TokenJoin::kWithSpaces:
      if (!state.first) state.joined += ' ';
      state.joined += state.piece;
      break;
    case TokenJoin::kPlain: state.joined += state.piece; break;
    case TokenJoin::kByteLevel:
      append_letter_bytes(state.piece, state.bytes);
      take_characters(state.bytes, Damage::kPerPart, state.joined);
      break;
    case TokenJoin::kByteFallback:
      if (const auto byte = byte_token(state.piece)) {
        state.bytes += *byte;
        take_characters(state.bytes, Damage::kPerByte, state.joined);
      } else {
        take_rest(state.bytes, Damage::kPerByte, state.joined);
        state.joined += state.piece;
      }
      break;
  }
  state.first = false;
}

void TokenDecoder::emit(End end, State& state, std::string& out) const {
  state.texts.resize(text_steps_.size());
  std::string& text = state.joined;
  for (std::size_t i = 0; i < text_steps_.size(); ++i) {
    State::Text& memory = state.texts[i];
    if (const auto* strip = std::get_if<StripTextStep>(&text_steps_[i])) {
      std::size_t cut = 0;
      while (!memory.strip_done && cut < text.size()) {
        const bool same = std::string_view(text).substr(cut).starts_with(strip->content);
        if (same && memory.stripped < strip->start) {
          cut += strip->content.size();
          ++memory.stripped;
        } else {
          memory.strip_done = true;
        }
      }
      text.erase(0, cut);
      continue;
    }
    const auto& replace = std::get<ReplacePieceStep>(text_steps_[i]);
    text.insert(0, memory.held);
    // Only the text after the last whole match can still become a match.
    std::size_t tail = 0;
    for (std::size_t at = text.find(replace.from); at != std::string::npos;
         at = text.find(replace.from, tail)) {
      tail = at + replace.from.size();
    }
    const std::size_t hold =
        end == End::kFinal ? 0 : partial_match(std::string_view(text).substr(tail), replace.from);
    memory.held.assign(text, text.size() - hold, hold);
    text.resize(text.size() - hold);
    replace_literal(replace.from, replace.to, text, state.spare);
  }
  out += text;
  text.clear();
}

void TokenDecoder::push(std::string_view token, State& state, std::string& out) const {
  state.piece.assign(token);
  for (const PieceStep& step : piece_steps_) std::visit(PieceRunner{state}, step);
  join(state);
  emit(End::kOpen, state, out);
}

std::string TokenDecoder::bytes_of(std::string_view token) const {
  State state;
  state.first = false;
  state.piece.assign(token);
  for (const PieceStep& step : piece_steps_) std::visit(PieceRunner{state}, step);
  if (join_ == TokenJoin::kByteLevel) {
    append_letter_bytes(state.piece, state.bytes);
    return std::move(state.bytes);
  }
  if (join_ == TokenJoin::kByteFallback) {
    if (const auto byte = byte_token(state.piece)) return {*byte};
  }
  return std::move(state.piece);
}

void TokenDecoder::finish(State& state, std::string& out) const {
  const Damage damage = join_ == TokenJoin::kByteFallback ? Damage::kPerByte : Damage::kPerPart;
  take_rest(state.bytes, damage, state.joined);
  emit(End::kFinal, state, out);
  state = State{};
}

}  // namespace sluice
