// TokenDecoder: the `decoder` of a tokenizer.json. It turns the texts of tokens into text, one
// token at a time. It outputs text in whole characters as soon as no later token can change it.
// Three stages: steps on each token's text, one way to join the tokens, steps on the joined text.
// Immutable after it is built; any thread, each with its own State.
//
// One difference from the reference: in a run of byte tokens that is not valid UTF-8, each byte
// that cannot be part of a character becomes U+FFFD. In the reference every byte of the run does,
// but then a stream would hold back valid text until the run ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sluice {

struct ReplacePieceStep {
  std::string from;  // not empty
  std::string to;
};
struct MetaspacePieceStep {
  std::string replacement;
  bool drop_in_first = false;  // the first token's marks vanish instead of becoming spaces
};
struct StripPieceStep {
  std::string content;  // one character
  std::size_t start = 0;
  std::size_t stop = 0;
};
using PieceStep = std::variant<ReplacePieceStep, MetaspacePieceStep, StripPieceStep>;

enum class TokenJoin {
  kPlain,
  kWithSpaces,    // the default without a decoder
  kByteLevel,     // byte letters become bytes
  kByteFallback,  // <0x41> becomes a byte
};

struct StripTextStep {
  std::string content;  // one character
  std::size_t start = 0;
};
using TextStep = std::variant<StripTextStep, ReplacePieceStep>;

class TokenDecoder {
 public:
  struct State {
    bool first = true;
    std::string bytes;  // of a character that is not complete yet
    struct Text {
      std::size_t stripped = 0;
      bool strip_done = false;
      std::string held;  // may become a match of a Replace
    };
    std::vector<Text> texts;  // one for each text step
    std::string piece;
    std::string joined;
    std::string spare;
  };

  TokenDecoder() = default;
  TokenDecoder(std::vector<PieceStep> piece_steps, TokenJoin join, std::vector<TextStep> text_steps)
      : piece_steps_(std::move(piece_steps)), join_(join), text_steps_(std::move(text_steps)) {}

  const std::vector<PieceStep>& piece_steps() const { return piece_steps_; }
  TokenJoin token_join() const { return join_; }
  const std::vector<TextStep>& text_steps() const { return text_steps_; }

  // Appends to `out` the text that the token makes certain. REQUIRES: the token's text is valid
  // UTF-8.
  void push(std::string_view token, State& state, std::string& out) const;

  // Appends the text that was held back; an incomplete character becomes U+FFFD. Resets the state.
  void finish(State& state, std::string& out) const;

  // The bytes of one token in the middle of a text; possibly not whole characters.
  std::string bytes_of(std::string_view token) const;

 private:
  enum class End { kOpen, kFinal };
  void join(State& state) const;
  void emit(End end, State& state, std::string& out) const;

  std::vector<PieceStep> piece_steps_;
  TokenJoin join_ = TokenJoin::kWithSpaces;
  std::vector<TextStep> text_steps_;
};

}  // namespace sluice
